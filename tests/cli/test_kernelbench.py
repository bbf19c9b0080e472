"""``kernelmark kernelbench`` as a user runs it; the kernels are compiled for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelmark.records import read_run

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "KernelBench" / "test-kernel-bench.py"


def run(tmp_path: Path, *arguments: str, root: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KERNELBENCH_ROOT"}
    if root is not None:
        environment["KERNELBENCH_ROOT"] = root
    return subprocess.run(
        [sys.executable, str(PROGRAM), "--out", str(tmp_path / "out"), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.spec("L2", "L3", "L12", "L13")
def test_our_own_models_run_with_nothing_downloaded_and_it_prints_what_it_ran(tmp_path: Path) -> None:
    done = run(tmp_path, "--kernel", "level1/6_", "--kernel", "level1/12_")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Running command: kernel-bench ") == 2
    assert done.stdout.count("Success: The output of the compiled model matches the reference output.") == 2
    assert done.stdout.count("\nTolerance: ") == 2
    assert done.stdout.count("Return code: 0") == 2
    assert "2 kernels: 2 verified" in done.stdout
    again = run(tmp_path, "--kernel", "level1/6_", "--kernel", "level1/12_", "--resume", "--quiet")
    assert "Running command" not in again.stdout
    assert "2 kernels: 2 verified" in again.stdout


@pytest.mark.slow
@pytest.mark.spec("L2", "L10", "L12")
def test_a_kernel_that_fails_is_one_row_and_unknown_options_reach_the_model_command(tmp_path: Path) -> None:
    models = tmp_path / "tree" / "level1"
    models.mkdir(parents=True)
    body = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    tail = "def get_inputs(): return [torch.randn(4, 4)]\ndef get_init_inputs(): return []\n"
    (models / "1_fft.py").write_text(body.format("torch.fft.fft(x).real") + tail)
    waiting = "import os\nprint('threads that wait:', os.environ.get('OMP_WAIT_POLICY'))\n"
    (models / "2_add.py").write_text(waiting + body.format("x + 1") + tail)
    entry = "- kernel: level1/{}\n  input_shapes: [4x4]\n  output_shape: 4x4\n"
    suite = tmp_path / "suite.yaml"
    suite.write_text(entry.format("1_fft.py") + entry.format("2_add.py"))
    expected = tmp_path / "expected.txt"
    tree = ("--suite", str(suite), "--kernelbench-root", str(tmp_path / "tree"))
    done = run(tmp_path, *tree, "--smoke-test", "--keep", str(expected), "--threads", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--pipeline loops" in done.stdout
    assert "--threads 1" in done.stdout
    assert "threads that wait: passive" in done.stdout
    assert "1 verified, 1 import failure" in done.stdout
    kept = expected.read_text()
    assert "level1/1_fft.py: import failure" in kept
    assert "2_add" not in kept
    # what was run in another way is no answer to this question, also where nothing is left to run
    for other in (("--smoke-test",), ("--smoke-test", "--threads", "1", "--dtype", "bf16")):
        refused = run(tmp_path, *tree, "--resume", *other)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert "--resume: the run in --out was made with" in refused.stderr
    same = ("--smoke-test", "--threads", "1")
    resumed = run(tmp_path, *tree, "--resume", "--expect", str(expected), *same)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    # nor does a misspelt option or value cost what was found
    for wrong in (("--no-such-option",), ("--dtype", "f33"), ("--benchmark", "--baselines", "foo")):
        refused = run(tmp_path, *tree, *wrong)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert refused.stderr.startswith("error: ")
    assert len((tmp_path / "out" / "outcomes.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
@pytest.mark.spec("L2", "L5")
def test_two_are_timed_one_at_a_time_and_the_run_ends_with_a_table_that_can_be_compared(
    tmp_path: Path,
) -> None:
    kernels = ("--kernel", "level1/6_", "--kernel", "level1/12_")
    options = ("--benchmark", "--jobs", "2", "--baselines", "eager", "--iterations", "4", "--cache", "warm")
    done = run(tmp_path, *kernels, *options, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    # the last one: a kernel that loses to eager stands in the table of those too, before that of every kernel
    *_, row = (line for line in done.stdout.splitlines() if line.startswith("level1/12_sum "))
    assert row.split()[1:3] == ["reduction", "verified"]
    assert "eager / mlir" in done.stdout
    document = json.loads((tmp_path / "out" / "suite.json").read_text())
    assert document["baselines"] == ["eager"]
    assert document["header"]["command"][:3] == ["test-kernel-bench.py", "--out", str(tmp_path / "out")]
    for kernel in document["kernels"]:
        assert kernel["ratios"]["eager"]["low"] <= kernel["ratios"]["eager"]["high"]
    stored = read_run(tmp_path / "out" / "kernels" / "level1-12_sum")
    assert stored.header.command[0] == "kernel-bench"
    assert "--baselines" in stored.header.command
    report = [sys.executable, "-m", "kernelmark", "report", str(tmp_path / "out")]
    again = subprocess.run([*report, "--format", "markdown"], capture_output=True, text=True, timeout=60)
    assert again.stdout == (tmp_path / "out" / "suite.md").read_text()
    against = subprocess.run(
        [*report, "--against", str(tmp_path / "out")], capture_output=True, text=True, timeout=60
    )
    assert "No kernel's status changed." in against.stdout


@pytest.mark.spec("L12")
def test_an_interrupt_leaves_no_process_behind_and_the_run_can_be_taken_up(tmp_path: Path) -> None:
    models = tmp_path / "tree" / "level1"
    models.mkdir(parents=True)
    (models / "1_slow.py").write_text(
        "import os, pathlib, time\npathlib.Path('started').write_text(str(os.getpid()))\ntime.sleep(120)\n"
    )
    suite = tmp_path / "suite.yaml"
    suite.write_text("- kernel: level1/1_slow.py\n  input_shapes: [4x4]\n  output_shape: 4x4\n")
    command = [
        sys.executable,
        str(PROGRAM),
        "--suite",
        str(suite),
        "--kernelbench-root",
        str(tmp_path / "tree"),
    ]
    asked = subprocess.Popen([*command, "--out", "out"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        asked.send_signal(signal.SIGINT)
        _, errors = asked.communicate(timeout=30)
    assert asked.returncode == 130
    assert "interrupted" in errors
    pid = (tmp_path / "started").read_text()
    assert not Path(f"/proc/{pid}").exists()
    header = json.loads((tmp_path / "out" / "run.json").read_text())
    assert header["ended"] is None
    assert not (tmp_path / "out" / "outcomes.jsonl").exists()


@pytest.mark.spec("L1")
def test_a_prefix_that_fits_nothing_ends_with_2_and_names_what_is_near(tmp_path: Path) -> None:
    done = run(tmp_path, "--kernel", "level1/sofmax")
    assert done.returncode == 2
    assert "no kernel's name starts with it" in done.stderr
    assert "as for KernelBench's, get it with `git clone" in done.stderr


@pytest.mark.slow
@pytest.mark.spec("L2", "L12")
def test_verified_and_success_are_the_engine_s_words(tmp_path: Path) -> None:
    """A batch norm whose parameters make it the identity: its input would pass for its answer."""
    models = tmp_path / "tree" / "level1"
    models.mkdir(parents=True)
    (models / "1_norm.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(4)\n    def forward(self, x):\n        return self.norm(x)\n"
        "def get_inputs(): return [torch.randn(8, 4)]\ndef get_init_inputs(): return []\n"
    )
    suite = tmp_path / "suite.yaml"
    suite.write_text("- kernel: level1/1_norm.py\n  input_shapes: [8x4]\n  output_shape: 8x4\n")
    done = run(tmp_path, "--suite", str(suite), "--kernelbench-root", str(tmp_path / "tree"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 kernels: 1 unverified" in done.stdout
    assert "Success:" not in done.stdout
    assert "Unverified: " in done.stdout
    assert "Return code: 0" in done.stdout


@pytest.mark.spec("L13")
def test_without_the_tree_the_error_says_how_to_get_it_and_ends_with_3(tmp_path: Path) -> None:
    done = run(tmp_path, "--suite", "level1")
    assert done.returncode == 3
    assert "git clone" in done.stderr
    assert "--kernelbench-root or KERNELBENCH_ROOT" in done.stderr


@pytest.mark.spec("L13")
def test_check_root_says_what_differs_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "tree" / "level1").mkdir(parents=True)
    (tmp_path / "tree" / "level1" / "19_ReLU.py").touch()
    done = run(tmp_path, "--check-root", "--level", "1", root=str(tmp_path / "tree"))
    assert done.returncode == 1
    assert "missing: level1/20_LeakyReLU.py" in done.stdout
    assert "missing: level1/19_ReLU.py" not in done.stdout
    assert "99 kernels missing, 1 file changed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "own", "--suite", "level1"), "run it by itself"),
        (("--suite", "nosuch"), "suites that come with kernelmark: own, level1, level2, level3"),
        (("--sizes", "original"), "the entry has no 'original' sizes"),
        (("--list-schedules",), "shows something and runs nothing"),
        (("--kernel", "level1/6_", "--output-shape", "8xx"), "has an empty part"),
        (("--device", "cuda", "--memory", "4"), "leave --memory out"),
        (("--device", "gpu!"), "is no device"),
        (("--expect", "none.txt"), "cannot be read"),
        (("--suite", "none.yaml", "--kernelbench-root", "."), "cannot be read"),
        (("--kernelbench-root", ".", "--level", "1"), "holds no level1"),
    ],
)
def test_what_cannot_be_run_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
