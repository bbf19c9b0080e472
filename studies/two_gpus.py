"""Several ranks on two GPUs of one machine: what is read, who is named, and how it ends when a rank fails.

    python studies/two_gpus.py [--out FOLDER] [--only PART ...] [--device cpu]

Each part runs in processes of its own, with a time limit of its own; what it finds is printed as soon as it is there,
and a part that fails leaves the others alone. ``two_gpus.json`` holds all that the ranks told, ``two_gpus.md`` the
table of what was expected and found. The exit code is 1 if an expectation failed. With ``--device cpu`` the same goes
over gloo: a rehearsal of this script.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import two_gpus_expected as expected

RANKS = Path(__file__).with_name("two_gpus_ranks.py")
TOTAL_S = 142.0
"""All parts together; one that would begin later is not begun, and fails."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that should hold."""

    part: str
    what: str
    expected: str
    found: str
    holds: bool


Judge = Callable[[expected.Ran, bool], expected.Findings]


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its processes, its time limit, and what is expected of it."""

    name: str
    limit_s: float
    judge: Judge
    ranks: int = 2
    ends: tuple[int, ...] = (0, 1)
    """The ranks that must end by themselves."""


PARTS = (
    Part("topology", 30, expected.topology, ranks=1, ends=(0,)),
    Part("collectives", 60, expected.collectives),
    Part("skew", 60, expected.skew),
    Part("failures", 50, expected.failures),
    Part("killed", 45, expected.killed),
    Part("hangs", 50, expected.hangs, ends=(0,)),
    Part("control", 45, expected.control, ranks=1, ends=(0,)),
)


# --- running it -------------------------------------------------------------------------------------


def run(part: Part, device: str, limit_s: float, folder: Path) -> expected.Ran:
    """Run the ranks of one part until those that must end have ended, or the time is over."""
    environment = dict(os.environ)
    environment.setdefault(
        "GLOO_SOCKET_IFNAME", "lo"
    )  # all ranks are here, whatever this machine's name resolves to
    environment["PYTHONUNBUFFERED"] = "1"
    port, began, ran = str(free_port()), time.monotonic(), expected.Ran()
    logs = [
        (folder / f"{part.name}.{rank}.out", folder / f"{part.name}.{rank}.err") for rank in range(part.ranks)
    ]
    processes = []
    for rank, (out, err) in enumerate(logs):
        command = [sys.executable, str(RANKS), part.name, str(rank), str(part.ranks), port, device]
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            processes.append(
                subprocess.Popen(
                    command, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
                )
            )
    try:
        while time.monotonic() - began < limit_s and any(
            processes[rank].poll() is None for rank in part.ends
        ):
            time.sleep(0.05)
        ran.codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    ran.seconds = time.monotonic() - began
    for out, err in logs:
        ran.told.append(read_steps(out.read_text(errors="replace")))
        ran.tails.append(err.read_text(errors="replace")[-3000:])
    return ran


def read_steps(text: str) -> dict[str, list[dict[str, Any]]]:
    steps: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        if line.startswith('{"step"'):
            found = json.loads(line)
            steps.setdefault(found.pop("step"), []).append(found)
    return steps


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def judge(part: Part, ran: expected.Ran, gpu: bool) -> list[Expectation]:
    found = []
    try:
        for what, wanted, told, holds in part.judge(ran, gpu):
            found.append(Expectation(part.name, what, wanted, told, holds))
            show(found[-1])
    except Exception as error:  # the other parts go on
        last = traceback.format_exc()[-600:]
        found.append(
            Expectation(
                part.name, "all of it is told", "yes", f"{type(error).__name__}: {error}\n{last}", False
            )
        )
        show(found[-1])
    for rank in part.ends:
        if ran.codes[rank] is None:
            found.append(
                Expectation(
                    part.name, f"rank {rank} ends by itself", f"within {part.limit_s:.0f} s", "no", False
                )
            )
            show(found[-1])
    if not all(each.holds for each in found):
        for rank, tail in enumerate(ran.tails):
            print(
                f"    rank {rank} ended with {ran.codes[rank]}; the end of its stderr:\n{indented(tail)}",
                flush=True,
            )
            for step, tellings in ran.told[rank].items():
                for told in tellings:
                    if "traceback" in told:
                        print(f"    rank {rank}, {step}:\n{indented(told['traceback'][-900:])}", flush=True)
    return found


def show(each: Expectation) -> None:
    print(
        f"  {'ok  ' if each.holds else 'FAIL'} {each.what}: expected {each.expected}; found {each.found}",
        flush=True,
    )


def indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines())


def table(found: list[Expectation]) -> str:
    rows = ["| part | what | expected | found | |", "|---|---|---|---|---|"]
    for each in found:
        cells = (each.part, each.what, each.expected, each.found, "holds" if each.holds else "**fails**")
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], default=[])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    began, found, told = time.monotonic(), [], {}
    with tempfile.TemporaryDirectory(prefix="two-gpus-") as folder:
        for part in PARTS:
            if asked.only and part.name not in asked.only:
                continue
            left_s = TOTAL_S - (time.monotonic() - began)
            print(f"{part.name} ({left_s:.0f} s left)", flush=True)
            if left_s < 5:
                found.append(Expectation(part.name, "run", "yes", "no: the time was over", False))
                show(found[-1])
                continue
            ran = run(part, asked.device, min(part.limit_s, left_s), Path(folder))
            found += judge(part, ran, asked.device == "cuda")
            told[part.name] = asdict(ran)
            print(f"  {ran.seconds:.1f} s", flush=True)
            kept = {"expectations": [asdict(each) for each in found], "told": told}
            (asked.out / "two_gpus.json").write_text(json.dumps(kept, indent=1))
            (asked.out / "two_gpus.md").write_text(table(found))
    failed = [each for each in found if not each.holds]
    print(f"{len(found) - len(failed)} of {len(found)} expectations hold, {time.monotonic() - began:.0f} s")
    for each in failed:
        print(f"  FAIL {each.part}: {each.what}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
