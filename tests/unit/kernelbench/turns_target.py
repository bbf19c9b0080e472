"""What the processes of test_turns.py do; a server imports it by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernelmark.timing.turn import turn_to_time

COUNT = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('x')\n    time.sleep(0.002)\n"


def main(arguments: list[str]) -> int:
    how, *rest = arguments
    return {"work": work, "time": take_time, "die": die, "hang": hang, "watch": watch}[how](*rest)


def work(folder: str, seconds: str) -> int:
    """Count into one file, and have a process in a session of its own count into another."""
    place = Path(folder)
    child = subprocess.Popen([sys.executable, "-c", COUNT, str(place / "child")], start_new_session=True)
    (place / "pids").write_text(f"{os.getpid()} {child.pid}")
    for _ in range(int(float(seconds) / 0.002)):
        with open(place / "own", "a") as stream:
            stream.write("x")
        time.sleep(0.002)
    child.kill()
    child.wait()
    return 0


def take_time(folder: str, name: str, seconds: str) -> int:
    """Note when the turn began and ended."""
    with turn_to_time() as note:
        begin = time.monotonic()
        time.sleep(float(seconds))
        (Path(folder) / name).write_text(f"{begin} {time.monotonic()}")
    print(note)
    return 0


def watch(folder: str) -> int:
    """Say whether anybody counted during the turn, and whether somebody does after it."""
    files = [Path(folder) / name for name in ("own", "child")]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    with turn_to_time() as note:
        before = [file.stat().st_size for file in files]
        time.sleep(0.3)
        with turn_to_time() as again:
            print("the same turn" if again == note else "another turn")
        during = [file.stat().st_size for file in files]
    print(note)
    print("still" if during == before else f"counted {before} {during}")
    for _ in range(1000):
        if all(file.stat().st_size > size for file, size in zip(files, during, strict=True)):
            print("went on")
            return 0
        time.sleep(0.01)
    return 1


def die(folder: str) -> int:
    with turn_to_time():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def hang(folder: str) -> int:
    with turn_to_time():
        (Path(folder) / "hangs").touch()
        time.sleep(60)
    return 0
