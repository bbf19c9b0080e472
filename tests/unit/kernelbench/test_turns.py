"""One process has its turn and the others are held: real processes, really stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.kernelbench.turns import Turns
from kernelmark.prefork import Finished, Limits, Prefork

HERE = Path(__file__).parent
Start = Callable[..., "Future[Finished]"]


@pytest.fixture
def server() -> Iterator[Prefork]:
    path = os.pathsep.join([str(HERE), *sys.path])
    with Prefork("turns_target:main", environment={"PYTHONPATH": path}) as opened:
        yield opened


@pytest.fixture
def start(server: Prefork, tmp_path: Path) -> Iterator[Start]:
    with Turns(server) as turns, ThreadPoolExecutor(4) as pool:

        def one(how: str, *rest: str, limit_s: float = 20) -> Future[Finished]:
            return pool.submit(
                server.run,
                [how, str(tmp_path), *rest],
                log=tmp_path / f"{how}{''.join(rest)}.txt",
                limits=Limits(time_s=limit_s),
                variables=turns.variables,
            )

        yield one


def wait_for(file: Path) -> None:
    until = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < until, f"{file} did not come"
        time.sleep(0.005)


def pids_of(folder: Path) -> list[int]:
    wait_for(folder / "child")
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 10
    while not all(state_of(pid) in ("gone", "Z") for pid in pids):
        assert time.monotonic() < until, [state_of(pid) for pid in pids]
        time.sleep(0.01)


def test_nobody_else_works_during_a_turn_nor_what_they_started_and_all_go_on_after_it(start: Start) -> None:
    working, watching = start("work", "1.5"), start("watch")
    told = watching.result().output.splitlines()
    assert told == [
        "the same turn",
        "the processes of another kernel were held while this was timed",
        "still",
        "went on",
    ]
    assert working.result().code == 0


def test_two_turns_never_overlap_and_one_that_is_alone_holds_nobody(start: Start, tmp_path: Path) -> None:
    both = [start("time", name, "0.4") for name in ("a", "b")]
    assert [each.result().code for each in both] == [0, 0]
    spans = sorted(tuple(map(float, (tmp_path / name).read_text().split())) for name in ("a", "b"))
    assert spans[0][1] <= spans[1][0]
    alone = start("time", "c", "0").result()
    assert (alone.code, alone.output) == (0, "")


def test_time_held_or_spent_waiting_counts_against_no_limit(start: Start, tmp_path: Path) -> None:
    worker = start("work", "0.5", limit_s=2.5)
    pids_of(tmp_path)
    first = start("time", "first", "2", limit_s=3.5)
    second = start("time", "second", "2", limit_s=3.5)
    ended = [each.result() for each in (worker, first, second)]
    assert [each.timed_out for each in ended] == [False, False, False]
    spans = sorted(tuple(map(float, (tmp_path / name).read_text().split())) for name in ("first", "second"))
    assert spans[1][1] - spans[0][0] > 4  # so the second waited for longer than was left of its limit
    assert ended[0].wall_s < 2.5


def test_a_turn_ends_with_the_process_that_has_it(start: Start, tmp_path: Path) -> None:
    working = start("work", "0.5")
    pids_of(tmp_path)
    assert start("die").result().code == -signal.SIGKILL
    assert start("time", "next", "0").result().code == 0
    assert working.result().code == 0


def test_a_turn_ends_with_the_limit_of_the_process_that_has_it(start: Start, tmp_path: Path) -> None:
    working = start("work", "0.5")
    pids_of(tmp_path)
    assert start("hang", limit_s=1).result().timed_out
    assert working.result().code == 0


def test_one_that_is_held_when_everything_is_closed_is_gone_with_what_it_started(
    server: Prefork, start: Start, tmp_path: Path
) -> None:
    working = start("work", "30", limit_s=60)
    pids = pids_of(tmp_path)
    hanging = start("hang", limit_s=60)
    wait_for(tmp_path / "hangs")
    assert [state_of(pid) for pid in pids] == ["T", "T"]
    server.close()
    wait_until_gone(pids)
    for each in (working, hanging, start("time", "late", "0")):
        with pytest.raises(UnavailableError):
            each.result()


def test_a_folder_for_temporary_files_whose_name_is_too_long_for_a_socket_is_told(
    server: Prefork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(UnavailableError, match="set TMPDIR"):
        Turns(server)
    assert not list(long.iterdir())


DRIVER = """
import sys, threading
from pathlib import Path
from kernelmark.kernelbench.turns import Turns
from kernelmark.prefork import Limits, Prefork
folder = Path(sys.argv[1])
with Prefork("turns_target:main") as server, Turns(server) as turns:
    def run(*arguments):
        log = folder / (arguments[0] + ".txt")
        server.run(arguments, log=log, limits=Limits(time_s=60), variables=turns.variables)
    threading.Thread(target=run, args=("work", str(folder), "30"), daemon=True).start()
    while not (folder / "child").exists():
        pass
    run("hang", str(folder))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_one_that_is_held_when_the_driver_dies_is_gone_with_what_it_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = os.pathsep.join([str(HERE), *sys.path])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(tmp_path / "hangs")
        pids = pids_of(tmp_path)
        assert [state_of(pid) for pid in pids] == ["T", "T"]
    finally:
        driver.send_signal(number)
        driver.wait(20)
    wait_until_gone(pids)
