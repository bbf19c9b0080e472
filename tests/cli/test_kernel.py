"""``kernelmark kernel`` as a user runs it: exit codes, isolation, and reports that are always written.

What needs a worker is started once, two at a time: each imports torch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]

REFERENCE = "def reference(x, out, **kwargs):\n    return x * 2\n"
SOLUTION = """
import torch

def setup(M, d=1, **kwargs):
    return {{"inputs": {{"x": torch.randn(M, d), "out": torch.empty(M, d)}}, "outputs": ["out"]}}

def run_kernel(x, out):
    {body}
"""
RIGHT = "torch.mul(x, 2, out=out)"
BODIES = {
    "right": RIGHT,
    "wrong": "torch.mul(x, 3, out=out)",
    "segfault": "print('about to fall', flush=True); __import__('ctypes').string_at(0)",
    "abort": "__import__('os').abort()",
    "exit": "__import__('os')._exit(0)",
    "sys_exit": "raise SystemExit(0)",
    "hang": (
        "import subprocess, sys, time, pathlib; child = subprocess.Popen([sys.executable, '-c',"
        " 'import time; time.sleep(600)']); pathlib.Path(__file__).with_name('child').write_text(str(child.pid));"
        " time.sleep(600)"
    ),
}
BREAKS_OUTSIDE = """
import sys

def reference(x, out, **kwargs):
    if sys.modules["kernelmark.isolation.channel"]._Here.judge:
        raise MemoryError("full")
    return x * 2
"""
"""A reference that cannot be run a second time."""
OPTIONS = (
    "--implementation=torch",
    "--device=cpu",
    "--num-trials=4",
    "--num-warmup=0",
    "--cache=warm",
    "--M=8",
)


@dataclass(frozen=True)
class Done:
    folder: Path
    code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> dict:
        return json.loads((self.folder / "out" / "benchmark.json").read_text())


def kernel(*arguments: str | Path, program: tuple[str, ...] = (), folder: Path) -> Done:
    """Run the command; with ``program``, as what follows ``python`` in a process that is started afresh."""
    if program:
        done = subprocess.run(
            [sys.executable, *program, *map(str, arguments)],
            cwd=folder,
            capture_output=True,
            check=False,
            encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
    else:
        done = run_forked("kernelmark", "kernel", *map(str, arguments), cwd=folder)
    return Done(folder, done.returncode, done.stdout, done.stderr)


def pair(folder: Path, body: str) -> tuple[str, ...]:
    (folder / "solution.py").write_text(SOLUTION.format(body=body))
    (folder / "ref.py").write_text(REFERENCE)
    return ("solution.py", "--ref=ref.py", "--output-dir=out")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    def start(name: str) -> Done:
        folder = tmp_path_factory.mktemp(name)
        extra = ("--timeout=2",) if name == "hang" else ("--d", "3") if name == "right" else ()
        programs = {
            "right": ("-m", "kernelmark", "kernel"),
            "wrong": (str(ROOT / "scripts" / "benchmark.py"),),
        }
        arguments = (*pair(folder, BODIES[name]), *OPTIONS, *extra)
        return kernel(*arguments, folder=folder, program=programs.get(name, ()))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BODIES, pool.map(start, BODIES), strict=True))


def test_a_right_solution_ends_with_0_and_a_table(runs: dict[str, Done]) -> None:
    done = runs["right"]
    assert (done.code, done.stderr) == (0, "")
    assert "pytorch-eager" in done.stdout
    assert "the report is out/benchmark.md" in done.stdout
    assert done.told["header"]["dimensions"] == {"M": "8", "d": "3"}
    assert done.told["header"]["isolated"] is True


@pytest.mark.spec("K4")
def test_a_wrong_solution_ends_with_1_also_through_the_script(runs: dict[str, Done]) -> None:
    done = runs["wrong"]
    assert done.code == 1
    assert "does not match the reference" in done.stderr
    assert done.told["outcome"] == "wrong"


def test_answers_that_cannot_be_checked_again_end_with_3_and_without_times(tmp_path: Path) -> None:
    arguments = pair(tmp_path, RIGHT)
    (tmp_path / "ref.py").write_text(BREAKS_OUTSIDE)
    done = kernel(*arguments, *OPTIONS, folder=tmp_path)
    assert done.code == 3
    assert "could not be checked a second time" in done.stderr
    assert "full" in done.stderr
    assert done.told["outcome"] == "untimed"
    assert "median_ms" not in done.told["variants"]["solution"]


@pytest.mark.spec("K8")
@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("segfault", ("SIGSEGV", "about to fall", "run_kernel")),
        ("abort", ("SIGABRT",)),
        ("exit", ("status 0",)),
        ("sys_exit", ("sys.exit(0)",)),
        ("hang", ("did not end within 2 s",)),
    ],
)
def test_a_solution_that_dies_ends_with_4_and_its_evidence_is_in_the_report(runs, name, evidence) -> None:
    done = runs[name]
    assert done.code == 4
    page = (done.folder / "out" / "benchmark.md").read_text()
    for text in evidence:
        assert text in done.stderr + json.dumps(done.told)
        assert text in page
    assert done.told["outcome"] == "crashed"
    checks = {variant: each["check"] for variant, each in done.told["variants"].items()}
    assert checks == {"solution": "failed", "pytorch-eager": "unverified"}


def test_what_a_hanging_solution_started_is_gone(runs: dict[str, Done]) -> None:
    pid = int((runs["hang"].folder / "child").read_text())
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.spec("K5")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--num-trials=0",), "at least 3"),
        (("--nope=1",), "--nope=1: neither an option nor a parameter"),
        (("--num-trial=4",), "did you mean '--num-trials'"),
        (("--cahce=warm",), "did you mean '--cache'"),
        (("--cache=hot",), "--cache=hot: there is no such one; there are: cold, warm"),
        (("--timing-method=nope",), "--timing-method=nope: there is no such one"),
        (("--arch=",), "--arch=: give an architecture"),
        (("--d",), "--d has no value"),
        (("--d=1", "--d=2"), "given twice"),
        (("--baselines=cublas",), "there is no baseline 'cublas'"),
        (("--impl=cuda",), "there is auto, cuda-cpp"),
        (("--backend=cuda-cpp",), "takes a .cu file"),
    ],
)
def test_bad_command_lines_end_with_2(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = kernel(*pair(tmp_path, RIGHT), *arguments, folder=tmp_path)
    assert done.code == 2
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_reference_option_or_file_ends_with_2(tmp_path: Path) -> None:
    solution, *_ = pair(tmp_path, RIGHT)
    assert "--ref is missing" in kernel(solution, "--output-dir=out", folder=tmp_path).stderr
    done = kernel(solution, "--ref=no.py", "--output-dir=out", folder=tmp_path)
    assert (done.code, "there is no file no.py" in done.stderr) == (2, True)


def test_help_says_which_options_are_required_and_names_every_default(tmp_path: Path) -> None:
    said = " ".join(kernel("--help", folder=tmp_path).stdout.split())
    assert said.count("Required: ") == 2
    for told in (
        "--baselines TEXT",
        "[default: pytorch-eager]",
        "--timeout FLOAT",
        "[default: 300.0]",
        "--no-isolation",
    ):
        assert told in said


def test_a_line_of_a_sweep_says_who_is_faster_than_whom(tmp_path: Path) -> None:
    arguments = pair(tmp_path, RIGHT)
    done = kernel(*arguments, *OPTIONS[:-1], "--no-isolation", "--sweep=M=8,16", folder=tmp_path)
    line = r"M=8: measured; median \S+ \S+; \S+ \[\S+ \S+\] times as fast as pytorch-eager \(\w+\)"
    assert re.search(line, done.stdout), done.stdout
    assert (done.code, "M=16: measured" in done.stdout) == (0, True)


@pytest.mark.spec("K6")
def test_a_missing_library_ends_with_3_and_the_line_to_run(tmp_path: Path) -> None:
    pair(tmp_path, RIGHT)
    (tmp_path / "k.cu").write_text('extern "C" void solve(const float* x, float* out, int M) {}')
    done = kernel("k.cu", "--ref=ref.py", "--output-dir=out", "--M=4", "--arch=sm_90", folder=tmp_path)
    assert done.code == 3
    line = "nvcc -shared -std=c++17 -arch=sm_90 -O3 -Xcompiler -fPIC -o k.so k.cu"
    assert line in done.stderr


@pytest.mark.spec("K1")
def test_init_writes_a_pair_and_the_line_that_runs_it(tmp_path: Path) -> None:
    done = kernel("--init", "torch", "new", folder=tmp_path)
    assert done.code == 0
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["reference.py", "softmax.py"]
    assert "kernelmark kernel new/softmax.py --implementation=torch" in done.stdout
    assert kernel("--init", "torch", "new", folder=tmp_path).code == 2


@pytest.mark.slow
@pytest.mark.spec("K1")
@pytest.mark.parametrize(
    ("language", "options", "told"),
    [
        ("torch", ("--device=cpu",), "verified"),
        ("cpp", (), "verified"),
        ("triton", (), "interpreter"),
        ("cuda-cpp", ("--arch=sm_90",), "needs a CUDA device"),
        ("cute-dsl", (), "nvidia-cutlass-dsl"),
    ],
)
def test_the_line_that_init_prints_runs(
    tmp_path: Path, language: str, options: tuple[str, ...], told: str
) -> None:
    """Where this machine has what the language needs; elsewhere it says what is missing, and ends with 3.

    With smaller sizes than it prints: Triton's interpreter takes a minute for those.
    """
    import torch

    if told not in ("verified", "interpreter") and torch.cuda.is_available():
        pytest.skip("there is a CUDA device, so nothing is missing")
    if language in ("cpp", "cuda-cpp") and shutil.which("nvcc" if language == "cuda-cpp" else "g++") is None:
        pytest.skip(f"the compiler of {language} is not installed")
    if language == "cute-dsl" and importlib.util.find_spec("cutlass") is not None:
        pytest.skip("nvidia-cutlass-dsl is installed, so nothing is missing")
    line = kernel("--init", language, "new", folder=tmp_path).stdout.splitlines()[1].replace("1024", "64")
    program, subcommand, *rest = shlex.split(line)
    assert (program, subcommand) == ("kernelmark", "kernel")
    quick = ("--num-trials=4", "--num-warmup=0", "--cache=warm")
    done = kernel(*rest, *options, *quick, folder=tmp_path)
    missing = told not in ("verified", "interpreter")
    assert done.code == (3 if missing else 0), done.stderr
    assert told in done.stdout + done.stderr
