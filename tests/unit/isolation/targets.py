"""What the workers of these tests do: real functions, called in real processes by their names."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import FileError, VerificationError
from kernelmark.isolation import READY, TIMED, Channel, refuse_foreign_code_in_a_judge, turn_to_time

SLEEPER = "import time; time.sleep(600)"
COUNT = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('x')\n    time.sleep(0.002)\n"


class Kind(StrEnum):
    A = "a"
    B = "b"


@dataclass(frozen=True, slots=True)
class Request:
    kind: Kind
    folder: Path
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    request: Request
    pid: int


def answer(request: Request, channel: Channel) -> Answer:
    assert isinstance(request.kind, Kind)
    print("out")
    print("err", file=sys.stderr)
    return Answer(request, os.getpid())


def read_input(request: None, channel: Channel) -> str:
    return os.read(0, 64).decode()


def raise_field(line: int, channel: Channel) -> None:
    try:
        raise ValueError("inner")
    except ValueError as error:
        raise FileError("is wrong", path="x.yaml", line=line, field="a.b") from error


def raise_rows(rows: list[int], channel: Channel) -> None:
    error = VerificationError("wrong", comparison=threading.Lock())
    error.add_note("noted")
    raise error


class MineError(LookupError):
    def __init__(self) -> None:
        super().__init__("of my own")


def raise_own(_: Any, channel: Channel) -> None:
    raise MineError


def leave(how: str, channel: Channel) -> Any:
    """End in one way or another."""
    channel.stage("leaving")
    channel.tell({"before": how})
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(4)
    if how == "_exit":
        os._exit(5)
    if how == "lock":
        return threading.Lock()
    if how == "garbage":
        channel._line.sendall(b"no message\n")
        time.sleep(60)
    if how == "close":
        channel._line.close()
        channel._answers.close()
        time.sleep(60)
    return None


def hang(started: bool, channel: Channel) -> None:
    if started:
        channel.stage(READY)
    channel.stage("hanging")
    time.sleep(60)


def slow_stage(limit_s: float, channel: Channel) -> str:
    channel.stage("short", limit_s=limit_s)
    time.sleep(1)
    channel.stage("long")
    time.sleep(1)
    return "through"


def beat(times: int, channel: Channel) -> int:
    for _ in range(times):
        time.sleep(0.2)
        channel.beat()
    time.sleep(60)
    return times


def allocate(_: Any, channel: Channel) -> str:
    try:
        mmap.mmap(-1, 2 << 30).close()  # not touched, so that nothing is written
    except OSError as error:
        return str(error)
    return "there was room"


def scatter(how: str, channel: Channel) -> list[int]:
    """Start processes that leave: a session of its own, an orphan of that, one without a mark, a mere fork."""
    pids = [subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True).pid]
    pids.append(subprocess.Popen([sys.executable, "-c", SLEEPER], env={"PATH": "/bin"}, process_group=0).pid)
    program = (
        "import os, subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], start_new_session=True, stdout=-3)\n"
        "print(p.pid)"
    )
    pids.append(int(subprocess.check_output([sys.executable, "-c", program], start_new_session=True)))
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    pids.append(int(os.read(reading, 16)))
    channel.tell(pids)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(60)
    return pids


def flood(_: Any, channel: Channel) -> None:
    while True:
        sys.stdout.write("x" * 4096 + "\n")


def ask(_: Any, channel: Channel) -> Any:
    return channel.ask(TIMED)


def load(path: Path, channel: Channel) -> str:
    refuse_foreign_code_in_a_judge(path)
    return "loaded"


def pid(_: Any, channel: Channel) -> int:
    print("pid", flush=True)
    return os.getpid()


def modules(name: str, channel: Channel) -> bool:
    return name in sys.modules


def environment(name: str, channel: Channel) -> str | None:
    return os.environ.get(name)


def meet(request: list[str], channel: Channel) -> str:
    """Wait for the other one; both can only end if both run."""
    name, folder = request
    (Path(folder) / f"{name}.here").touch()
    other = {"a": "b", "b": "a"}[name]
    while not (Path(folder) / f"{other}.here").exists():
        time.sleep(0.01)
    return f"met {other}"


# --- turns -------------------------------------------------------------------------------------------


def work(request: list[Any], channel: Channel) -> None:
    """Count into one file, and have a process in a session of its own count into another."""
    folder, seconds = Path(request[0]), float(request[1])
    child = subprocess.Popen([sys.executable, "-c", COUNT, str(folder / "child")], start_new_session=True)
    (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
    for _ in range(int(seconds / 0.002)):
        with open(folder / "own", "a") as stream:
            stream.write("x")
        time.sleep(0.002)
    child.kill()
    child.wait()


def take_time(request: list[Any], channel: Channel) -> str:
    """Note when the turn began and ended."""
    folder, name, seconds = request
    with turn_to_time() as note:
        begin = time.monotonic()
        time.sleep(float(seconds))
        (Path(folder) / name).write_text(json.dumps([begin, time.monotonic()]))
    return note


def watch(folder: str, channel: Channel) -> list[str]:
    """Say whether anybody counted during the turn, and whether somebody does after it."""
    files = [Path(folder) / name for name in ("own", "child")]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    told = []
    with turn_to_time() as note:
        before = [file.stat().st_size for file in files]
        time.sleep(0.3)
        with turn_to_time() as again:
            told.append("the same turn" if again == note else "another turn")
        during = [file.stat().st_size for file in files]
    told += [note, "still" if during == before else f"counted {before} {during}"]
    for _ in range(1000):
        if all(file.stat().st_size > size for file, size in zip(files, during, strict=True)):
            return [*told, "went on"]
        time.sleep(0.01)
    return told


def die_in_turn(folder: str, channel: Channel) -> None:
    with turn_to_time():
        os.kill(os.getpid(), signal.SIGKILL)


def hang_in_turn(folder: str, channel: Channel) -> None:
    with turn_to_time():
        (Path(folder) / "hangs").touch()
        time.sleep(60)


def take_time_below(request: list[Any], channel: Channel) -> str:
    """Have a worker of one's own take the turn."""
    from kernelmark.isolation import Limits, Worker

    with Worker(take_time, Limits(20)) as below:
        return below.call(request).value()
