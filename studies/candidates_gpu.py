"""Generated kernels on this GPU: honest ones must be verified, cheats must not; one table, exit 1 where not so.

    python studies/candidates_gpu.py [--device cuda] [--group FOLDER] [--only WORD] [--out FOLDER]

The candidates are those of the tests, for our own models: torch, Triton, and inline CUDA where nvcc is installed.
Without it that is said and the others run. With ``--device cpu`` those run that need no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmark.isolation import Limits
from kernelmark.kernelbench.candidates.finding import Candidate, find_candidates
from kernelmark.kernelbench.candidates.job import Baseline, Judging, Settings
from kernelmark.kernelbench.candidates.judging import judge, workers_for
from kernelmark.kernelbench.candidates.page import Judged, candidates_page, write_pages
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import load_suite
from kernelmark.report.pages import page_text

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data" / "candidates"
SUITE = ROOT / "examples" / "KernelBench"
LIMIT_S = 300.0


@dataclass(frozen=True)
class Group:
    """Candidates that must all end alike."""

    folder: str
    honest: bool
    gpu: bool = False
    """Whether they need one."""
    program: str = ""
    """What must be installed to build them."""


GROUPS = (
    Group("gpu/honest", honest=True, gpu=True),
    Group("honest", honest=True),
    Group("gpu/adversarial", honest=False, gpu=True),
    Group("adversarial", honest=False),
    Group("gpu/nvcc", honest=True, gpu=True, program="nvcc"),
)


def chosen(device: str, only: str, groups: list[str]) -> list[tuple[Group, Candidate]]:
    """List what can run here, and say what cannot."""
    entries = load_suite(SUITE / "own.yaml").entries
    found = []
    for group in GROUPS:
        if groups and group.folder not in groups:
            continue
        if group.gpu and device == "cpu":
            print(f"{group.folder}: left out, it needs a GPU")
        elif group.program and shutil.which(group.program) is None:
            print(f"{group.folder}: left out, there is no {group.program} here")
        else:
            found += [
                (group, each) for each in find_candidates(DATA / group.folder, entries) if only in each.name
            ]
    return found


def unexpected(group: Group, judged: Judged) -> str:
    """Say what is not as it must be; blank where it is."""
    verified = judged.status is Status.VERIFIED
    if group.honest and not verified:
        return f"{group.folder}/{judged.name} is honest, and {judged.status}: {judged.message}"
    if not group.honest and verified:
        return f"{group.folder}/{judged.name} cheats, and is verified"
    if judged.status is Status.UNAVAILABLE:
        return f"{group.folder}/{judged.name} could not be tried: {judged.message}"
    if not group.honest and not judged.message:
        return f"{group.folder}/{judged.name} is {judged.status} without a reason"
    if group.honest and not judged.speedups:
        return f"{group.folder}/{judged.name} is verified and has no speed-up"
    return ""


def main() -> int:
    """Judge them all, print the page, and say what was unexpected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="folder to keep the runs in")
    parser.add_argument("--only", default="", help="only candidates with this in their name")
    parser.add_argument("--group", action="append", choices=[each.folder for each in GROUPS])
    parser.add_argument("--iterations", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = given.out or Path(scratch)
        # inductor takes most of a candidate's time, and says nothing about one that cheats
        settings = Settings(device=given.device, iterations=given.iterations)
        quick = replace(settings, baselines=(Baseline.EAGER,))
        judging = Judging(SUITE / "models", out, settings=settings, limits=Limits(LIMIT_S))
        judged, wrong = [], []
        with workers_for(given.device) as workers:
            for group, candidate in chosen(given.device, given.only, given.group or []):
                own = judging if group.honest else replace(judging, settings=quick)
                one = judge(candidate, own, workers)
                judged.append(one)
                wrong += [told] if (told := unexpected(group, one)) else []
                print(f"{group.folder}/{one.name}: {one.status} in {one.wall_s:.1f} s", flush=True)
        write_pages(judged, judging, given.device)
        print(page_text(candidates_page(judged, judging, given.device)))
    for told in wrong:
        print(f"unexpected: {told}")
    print(f"{len(judged)} candidates, {len(wrong)} unexpected")
    return 1 if wrong or not judged else 0


if __name__ == "__main__":
    sys.exit(main())
