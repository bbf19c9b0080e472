"""Real processes, forked by a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.prefork import Finished, Limits, Prefork

HERE = Path(__file__).parent
LIMITS = Limits(time_s=20)


@pytest.fixture(scope="module")
def server() -> Iterator[Prefork]:
    path = {"PYTHONPATH": str(HERE)}
    with Prefork("prefork_target:main", preload=("json",), environment=path) as opened:
        yield opened


def run(server: Prefork, tmp_path: Path, *arguments: str, limits: Limits = LIMITS) -> Finished:
    return server.run(arguments, log=tmp_path / "log.txt", limits=limits)


def test_what_a_process_prints_and_returns_comes_back(server: Prefork, tmp_path: Path) -> None:
    ended = run(server, tmp_path, "print", "hello")
    assert (ended.code, ended.output, ended.timed_out) == (0, "hello", False)


@pytest.mark.parametrize(("how", "code"), [("return", 3), ("exit", 4), ("raise", 70)])
def test_each_way_to_end_has_its_code(server: Prefork, tmp_path: Path, how: str, code: int) -> None:
    assert run(server, tmp_path, how).code == code


def test_an_exception_leaves_its_traceback(server: Prefork, tmp_path: Path) -> None:
    ended = run(server, tmp_path, "raise")
    assert "ValueError: mine" in ended.errors
    assert ended.output == ""


@pytest.mark.spec("L12")
def test_a_process_that_dies_of_a_signal_says_which_and_the_next_one_runs(
    server: Prefork, tmp_path: Path
) -> None:
    assert run(server, tmp_path, "segfault").code == -11
    assert run(server, tmp_path, "print", "on").output == "on"


@pytest.mark.spec("L12")
def test_a_process_that_hangs_is_ended_with_what_it_started(server: Prefork, tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = run(server, tmp_path, "hang", limits=Limits(time_s=3))
    assert ended.timed_out
    assert time.monotonic() - begin < 15
    grandchild = int(ended.output.split()[-1])
    assert not Path(f"/proc/{grandchild}").exists() or "Z" in state_of(grandchild)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_an_allocation_beyond_the_limit_fails_in_the_process(server: Prefork, tmp_path: Path) -> None:
    ended = run(server, tmp_path, "memory", limits=Limits(time_s=20, memory_bytes=1 << 30))
    assert ended.code == 5
    assert "Cannot allocate memory" in ended.output
    assert run(server, tmp_path, "memory").code == 0


def test_two_threads_run_two_processes_at_once(server: Prefork, tmp_path: Path) -> None:
    found: dict[str, str] = {}

    def one(name: str) -> None:
        found[name] = server.run(["meet", name, str(tmp_path)], log=tmp_path / name, limits=LIMITS).output

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": "met b", "b": "met a"}


def test_a_server_that_cannot_import_says_why() -> None:
    with pytest.raises(UnavailableError, match="no_such_module"):
        Prefork("no_such_module:main")


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    server = Prefork("prefork_target:main", environment={"PYTHONPATH": str(HERE)})
    server.close()
    with pytest.raises(UnavailableError, match="run the command again"):
        run(server, tmp_path, "print", "x")


def test_the_processes_have_the_server_s_modules(tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(HERE)}
    with Prefork("prefork_target:main", environment=path) as without:
        assert run(without, tmp_path, "modules").code == 1
    with Prefork("prefork_target:main", preload=("decimal",), environment=path) as with_it:
        assert run(with_it, tmp_path, "modules").code == 0


def test_a_module_that_is_not_installed_is_left_to_what_needs_it(tmp_path: Path) -> None:
    preload = ("no_such_module", "decimal")
    with Prefork("prefork_target:main", preload=preload, environment={"PYTHONPATH": str(HERE)}) as server:
        assert run(server, tmp_path, "modules").code == 0
