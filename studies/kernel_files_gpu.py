"""What the example kernels take on this machine's GPU, in each language, next to torch: one table.

    python studies/kernel_files_gpu.py [--only WORD] [--libraries FOLDER] [--timer NAME] [--out FILE]

Libraries are built first, side by side; one that lies in FOLDER under its source's stem is taken as it is.
Whatever fails is a row, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.errors import UnavailableError
from kernelmark.kernelfile import Language, Request, benchmark
from kernelmark.kernelfile.building import find_library
from kernelmark.kernelfile.request import LANGUAGES
from kernelmark.units import format_ratio, format_time

EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
ENDINGS = {
    "_cutlass.cu": Language.CUTLASS,
    ".cu": Language.CUDA_CPP,
    "_cute.py": Language.CUTE_DSL,
    "_triton.py": Language.TRITON,
    "_torch.py": Language.TORCH,
    ".cpp": Language.CPP,
}
SQUARE = {"M": "4096", "N": "4096"}
PROBLEMS: dict[str, dict[str, str]] = {
    "matmul_half": {**SQUARE, "K": "4096"},
    "rms_norm_bf16": {**SQUARE, "eps": "1e-6"},
    "softmax": SQUARE,
    "rms_norm": {**SQUARE, "eps": "1e-6"},
    "matmul": {**SQUARE, "K": "4096"},
}
"""What is run, in this order: what is left when the time is up is what matters least."""
ON_THE_CPU = {"M": "256", "N": "256", "K": "256", "eps": "1e-6"}
"""Sizes for a plain C++ library, which runs on one core."""
BASELINES = {"rms_norm_bf16": "pytorch-eager,flashinfer"}


@dataclass(frozen=True)
class Job:
    solution: Path
    language: Language
    values: dict[str, str]
    baselines: str

    @property
    def name(self) -> str:
        return f"{self.solution.parent.name}/{self.solution.name}"


def jobs(folder: Path, only: str) -> list[Job]:
    found = []
    for problem, values in PROBLEMS.items():
        for end, language in ENDINGS.items():
            for path in sorted((folder / problem).iterdir()):
                if next((e for e in ENDINGS if path.name.endswith(e)), "") != end or only not in str(path):
                    continue
                sizes = {name: ON_THE_CPU[name] for name in values} if language is Language.CPP else values
                found.append(Job(path, language, sizes, BASELINES.get(problem, "pytorch-eager")))
    return found


def request_for(job: Job, out: Path, options: argparse.Namespace) -> Request:
    entry = LANGUAGES[job.language]
    return Request(
        job.solution,
        job.solution.with_name("reference.py"),
        out / job.name.replace("/", "-"),
        values=job.values,
        implementation=job.language.value,
        baselines=job.baselines,  # type: ignore[arg-type]
        timing_method=options.timer if entry.runs_on != "cpu" else None,
        num_trials=options.trials,
        timeout_s=60,
        # one that was brought along lies beside its source
        compile=entry.interface == "library" and not job.solution.with_suffix(".so").exists(),
    )


def build(job: Job, out: Path, options: argparse.Namespace) -> str:
    """Have the library of ``job`` ready; say what stood in the way."""
    if LANGUAGES[job.language].interface != "library":
        return ""
    ready = options.libraries / f"{job.solution.stem}.so" if options.libraries else None
    try:
        # a .cpp and a .cu of one stem cannot both have theirs beside them: those come from the cache
        if ready is not None and ready.is_file() and job.language is Language.CUTLASS:
            shutil.copyfile(ready, job.solution.with_suffix(".so"))
        else:
            find_library(request_for(job, out, options))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def run(job: Job, out: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    begin = time.monotonic()
    failed, check = "", "failed"
    try:
        rows = benchmark(request_for(job, out, options)).rows
    except Exception as error:
        comparison = getattr(error, "comparison", None)
        rows, failed = tuple(comparison) if comparison else (), f"{type(error).__name__}: {error}"
        check = "unavailable" if isinstance(error, UnavailableError) else "failed"
    told = [row_of(job, row) for row in rows if row.implementation != "pytorch-eager"]
    told = told or [{**described(job), "check": check}]
    told[0]["failed"], told[0]["seconds"] = failed, round(time.monotonic() - begin, 1)
    eager = next((row.ratio for row in rows if row.implementation == "pytorch-eager"), None)
    if eager is not None:
        told[0]["ratio"] = [eager.value, eager.low, eager.high]
    return told


def described(job: Job) -> dict[str, Any]:
    return {"solution": job.name, "language": job.language.value, "values": job.values}


def row_of(job: Job, row: Any) -> dict[str, Any]:
    told = {**described(job), "row": row.implementation, "check": row.check.value, "note": row.note}
    told["notes"] = list(row.notes)
    if row.timing is not None:
        busy = row.timing.device_busy
        told |= {
            "busy_ns": busy.median_ns,
            "p10_ns": busy.p10_ns,
            "p90_ns": busy.p90_ns,
            "samples": busy.samples,
        }
        told["timer_notes"] = list(row.timing.notes)
    if row.implementation != "solution" and row.ratio is not None:
        # against a baseline: its time over the solution's
        told["ratio_of_solution_to_it"] = [row.ratio.value, row.ratio.low, row.ratio.high]
    return told


def line(told: dict[str, Any]) -> str:
    name = told["solution"] if told.get("row", "solution") == "solution" else f"  {told['row']}"
    busy = format_time(told["busy_ns"]) if "busy_ns" in told else ""
    spread = f"{format_time(told['p10_ns'])} – {format_time(told['p90_ns'])}" if "busy_ns" in told else ""
    ratio = told.get("ratio") or told.get("ratio_of_solution_to_it")
    shown = format_ratio(*ratio) if ratio else ""
    seconds = f"{told['seconds']:5.1f} s" if "seconds" in told else ""
    why = (told.get("failed") or (told.get("note", "") if told["check"] != "verified" else "")).splitlines()
    return (
        f"{name:34} {told['language']:9} {told['check']:11} {busy:>11} {spread:>22} {shown:24} {seconds:8}"
        f" {why[0][:120] if why else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Only solutions with this word in their path.")
    parser.add_argument(
        "--libraries", type=Path, help="Folder with libraries of CUTLASS solutions, built before."
    )
    parser.add_argument("--timer", help="Instrument; by default cuda_event.")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument(
        "--limit", type=float, default=180.0, help="Seconds after which nothing new is begun."
    )
    parser.add_argument("--out", type=Path, help="File for the figures as JSON.")
    options = parser.parse_args()
    begin, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary) / "kernels", Path(temporary) / "out"
        shutil.copytree(EXAMPLES, folder)
        todo = jobs(folder, options.only)
        with ThreadPoolExecutor(8) as pool:
            stopped = list(pool.map(lambda job: build(job, out, options), todo))
        print(f"libraries ready after {time.monotonic() - begin:.1f} s", flush=True)
        print(
            "ratio: eager's time over the solution's; below a solution, that baseline's time over it",
            flush=True,
        )
        for job, why in zip(todo, stopped, strict=True):
            if why:
                told = [{**described(job), "check": "not built", "failed": why}]
            elif time.monotonic() - begin > options.limit:
                told = [{**described(job), "check": "not run", "failed": "the time is up"}]
            else:
                told = run(job, out, options)
            rows += told
            print("\n".join(map(line, told)), flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    print(f"{time.monotonic() - begin:.1f} s in all")


main()
