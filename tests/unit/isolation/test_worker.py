"""A function called elsewhere: its answer, what it wrote, its limits, and processes that are kept or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.isolation import Judge, Limits, Start, Worker, errors_beside, importing_the_same, run_command
from tests.unit.isolation import targets
from tests.unit.isolation.conftest import Make, is_gone
from tests.unit.isolation.targets import Answer, Kind, Request


def test_what_is_asked_and_answered_has_its_types_on_both_sides(make: Make, tmp_path: Path) -> None:
    request = Request(Kind.B, tmp_path, (1.5, float("inf")))
    ended = make(targets.answer).call(request, log=tmp_path / "log.txt")
    answer = ended.value()
    assert isinstance(answer, Answer)
    assert answer.request == request
    assert answer.pid != os.getpid()
    assert (ended.output, ended.errors, ended.message) == ("out", "err", "")
    assert (tmp_path / "log.txt").read_text() == "out\n"
    assert errors_beside(tmp_path / "log.txt").read_text() == "err\n"


def test_a_function_may_be_named_and_its_answer_s_type_be_told(fork: Make, tmp_path: Path) -> None:
    name = f"{targets.__name__}:answer"
    request = Request(Kind.A, tmp_path)
    assert isinstance(fork(name, answer=Answer).call(request).answer, Answer)
    told = fork(name).call(request).value()
    assert told["request"]["kind"] == "a"


@pytest.mark.parametrize("start", list(Start))
def test_a_worker_s_standard_input_is_closed(start: Start) -> None:
    ours, given = os.dup(0), os.pipe()
    os.write(given[1], b"typed")
    os.dup2(given[0], 0)  # pytest's own says nothing, and an inherited one would not show
    try:
        with Worker(targets.read_input, Limits(20), start=start, environment=importing_the_same()) as worker:
            assert worker.call().value() == ""
        assert os.read(0, 64) == b"typed"
    finally:
        os.dup2(ours, 0)
        for each in (ours, *given):
            os.close(each)


def test_a_process_that_is_not_kept_is_gone_after_its_call(make: Make) -> None:
    worker = make(targets.pid)
    first, second = worker.call().value(), worker.call().value()
    assert first != second
    assert is_gone(first)


def test_a_process_that_is_kept_serves_until_one_call_ends_badly(make: Make, tmp_path: Path) -> None:
    worker = make(targets.leave, keep=True)
    pids = []
    for number in range(2):
        ended = worker.call("", log=tmp_path / f"{number}.txt")
        assert ended.death is None
        pids.append(next(iter(worker._live)).leader.pid)
    assert pids[0] == pids[1]
    assert worker.call("exit").failure
    assert is_gone(pids[0])
    assert worker.call("").death is None
    assert not is_gone(next(iter(worker._live)).leader.pid)


def test_a_kept_process_s_output_is_that_of_the_call(make: Make, tmp_path: Path) -> None:
    worker = make(targets.pid, keep=True)
    assert [worker.call(log=tmp_path / name).output for name in "ab"] == ["pid", "pid"]
    assert (tmp_path / "b").read_text() == "pid\n"


def test_an_allocation_beyond_the_limit_fails_in_the_process(make: Make) -> None:
    ended = make(targets.allocate, Limits(20, memory_bytes=1 << 30)).call()
    assert "Cannot allocate memory" in ended.value()
    assert make(targets.allocate).call().value() == "there was room"


def test_two_threads_run_two_processes_at_once(make: Make, tmp_path: Path) -> None:
    worker = make(targets.meet)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: worker.call([name, str(tmp_path)]).value(), "ab")
    assert list(found) == ["met b", "met a"]


def test_a_worker_has_the_variables_it_is_given(make: Make) -> None:
    worker = make(targets.environment, environment={**importing_the_same(), "OF_MINE": "x"})
    assert worker.call("OF_MINE").value() == "x"


def test_a_function_that_is_not_there_is_told(make: Make) -> None:
    ended = make("tests.unit.isolation.targets:no_such").call()
    assert ended.failure
    assert isinstance(ended.failure.error, AttributeError)


def test_a_closed_worker_starts_nothing(make: Make) -> None:
    worker = make(targets.pid)
    worker.close()
    with pytest.raises(UnavailableError, match="run the command again"):
        worker.call()


def test_a_call_that_is_cut_short_by_closing_says_so(make: Make) -> None:
    worker = make(targets.hang, Limits(60))
    with pytest.raises(UnavailableError, match="run the command again"):
        worker.call(True, on_stage=lambda stage: worker.close() if stage == "hanging" else None)


def test_a_judge_refuses_to_load_what_it_judges(start: Start, tmp_path: Path) -> None:
    for kind, message in ((Worker, ""), (Judge, "is a judge, and never loads what it judges")):
        with kind(targets.load, Limits(20), start=start, environment=importing_the_same()) as worker:
            ended = worker.call(tmp_path)
            assert message in ended.message
            assert bool(ended.failure) == bool(message)


def test_an_interrupt_in_a_call_leaves_nothing_behind(make: Make) -> None:
    pids: list[int] = []

    def interrupt(told: list[int]) -> None:
        pids.extend(told)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(targets.scatter).call("hang", on_told=interrupt)
    assert len(pids) == 4
    assert all(map(is_gone, pids))


# --- programs that know nothing of workers -------------------------------------------------------------

Run = Callable[..., None]


def test_a_program_s_end_and_output_are_told(tmp_path: Path) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr)"
    log = tmp_path / "log.txt"
    ended = run_command([sys.executable, "-c", program], log=log, limits=Limits(60))
    assert (ended.code, ended.death, ended.output, ended.errors) == (0, None, "out", "err")
    assert log.read_text() == "out\n"


@pytest.mark.parametrize(
    ("program", "death", "code"),
    [
        ("raise SystemExit(3)", "its process ended with status 3", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process died of SIGSEGV", -11),
    ],
)
def test_a_program_s_death_is_told(tmp_path: Path, program: str, death: str, code: int) -> None:
    ended = run_command([sys.executable, "-c", program], log=tmp_path / "log", limits=Limits(60))
    assert str(ended.death).startswith(death)
    assert ended.code == code


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    ended = run_command([sys.executable, "-c", program], log=tmp_path / "log", limits=Limits(3))
    assert str(ended.death) == "it did not end within 3 s"
    assert ended.code is None
    assert ended.wall_s < 60
    assert is_gone(int(ended.output))


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no-such-program cannot be started"):
        run_command([tmp_path / "no-such-program"], log=tmp_path / "log", limits=Limits(3))
