"""Work in a child that can be ended: limit, crash, exit code, interrupt; and a compiler that gets to no end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torchsched.bindings import available

WORK = """
import os, signal, sys, time
from kernelmark.cli.watched import end_by_interrupt
from kernelmark.isolation import READY

def work(request, channel):
    tell = channel.stage
    end_by_interrupt()
{work}
"""
PROGRAM = """
import sys
import click
from kernelmark.cli.exit_codes import exit_code_for
from kernelmark.cli.watched import run_watched
from kernelmark.errors import KernelmarkError
sys.path.insert(0, {folder!r})
from the_work import work

try:
    run_watched(work, None, limit_s={limit}, hint="wait longer")
except click.exceptions.Exit as end:
    sys.exit(end.exit_code)
except KernelmarkError as error:
    print(f"error: {{error}}", file=sys.stderr)
    sys.exit(int(exit_code_for(error)))
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)
"""

Command = Callable[..., list[str]]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def make(work: str, limit_s: float = 60.0) -> list[str]:
        (tmp_path / "the_work.py").write_text(WORK.format(work=textwrap.indent(work, "    ")))
        return [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path), limit=limit_s)]

    return make


@pytest.fixture
def run(command: Command) -> Run:
    def once(work: str, *, limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(work, limit_s), capture_output=True, text=True, timeout=120, check=False
        )

    return once


def test_what_ends_by_itself_ends_with_its_own_code_and_its_output_is_seen_once(run: Run) -> None:
    done = run("print('hello'); tell('import'); tell(READY); sys.exit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello\n", "")


def test_what_does_not_end_is_ended_and_the_step_is_named(run: Run) -> None:
    work = "print(os.getpid(), flush=True); tell('import'); tell(\"lower: pass 'cse' (s.yaml:2)\")\nwhile True: pass"
    done = run(work, limit_s=1.0)
    assert done.returncode == 4
    assert done.stderr == (
        "error: lower: pass 'cse' (s.yaml:2): compiling has not ended within 1 s, and was ended; wait longer\n"
    )
    assert not _runs(int(done.stdout))


def test_there_is_no_limit_once_it_is_compiled(run: Run) -> None:
    assert run("tell('import'); tell(READY); time.sleep(1.5)", limit_s=1.0).returncode == 0


def test_a_crash_is_told_with_the_stage(run: Run) -> None:
    done = run("tell('compile'); os.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == 4
    assert "error: its process died of SIGSEGV" in done.stderr
    assert "(at compile)" in done.stderr


@pytest.mark.parametrize("deaf", [False, True])
def test_an_interrupt_ends_the_child_also_one_that_does_not_listen(command: Command, deaf: bool) -> None:
    """A pass of MLIR's does not listen: it holds the interpreter."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    with subprocess.Popen(
        command(f"{ignore}print(os.getpid(), flush=True)\nwhile True: time.sleep(0.1)", 60.0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().splitlines()[-1] == "interrupted"
    assert not _runs(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_the_child_goes_when_its_parent_is_killed(command: Command) -> None:
    with subprocess.Popen(
        command("print(os.getpid(), flush=True)\nwhile True: time.sleep(0.1)", 60.0),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 30
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(child)


def test_one_that_listens_to_an_interrupt_ends_in_its_own_way(command: Command, tmp_path: Path) -> None:
    work = (
        "print(os.getpid(), flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        f"    open({str(tmp_path / 'told')!r}, 'w').close()\n    raise"
    )
    with subprocess.Popen(command(work), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (tmp_path / "told").exists()


def test_an_error_arrives_with_its_class_and_another_one_with_its_traceback(run: Run) -> None:
    done = run("from kernelmark.errors import UsageError\nraise UsageError('not so')")
    assert (done.returncode, done.stderr) == (2, "error: not so\n")
    done = run("1 / 0")
    assert done.returncode == 1
    assert "in work" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_a_request_that_has_answered_is_not_interrupted_any_more(run: Run) -> None:
    # what is thrown away after the answer takes its time, and the worker is asked to end meanwhile
    done = run(
        """
class Slow:
    def __del__(self):
        time.sleep(0.5)

slow = Slow()
slow.itself = slow
print("answered")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered\n", "")


WHOLE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %op = transform.structured.match ops{["linalg.generic"]} in %root : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %op : !transform.any_op
    transform.yield
  }
}
"""
"""One vector of the whole tensor: LLVM does not get to an end with 2048 rows of it."""


@pytest.mark.skipif(not available(), reason=available().detail)
def test_a_schedule_that_llvm_does_not_get_to_the_end_of_ends_with_4(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
        "def get_inputs():\n    return [torch.rand(2048, 2048)]\n"
    )
    (tmp_path / "whole.mlir").write_text(WHOLE)
    (tmp_path / "s.yaml").write_text(
        "pipeline:\n  - transform: whole.mlir\n  - include: shipped:lower.yaml\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "kernelmark", "model", "m.py", "--pipeline", "./s.yaml", "--timeout", "7"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    # at which stage depends on how busy the machine is; on a quiet one it is the last
    assert "compiling has not ended within 7 s, and was ended; give it more with --timeout" in done.stderr
    assert "Success" not in done.stdout


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
