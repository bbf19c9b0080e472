"""Plays the command for one model, for test_driver.py: the model file's name says how it ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from kernelmark.timing.turn import TURN_VARIABLE, turn_to_time

ENDS = {
    "wrong": (1, "error: the output differs from the reference: worst 3"),
    "usage": (2, "error: no such option"),
    "missing": (3, "error: torch-mlir is not installed"),
    "import": (4, "error: /m/model.py:3: import: aten.fft_rfft is not known"),
    "lower": (4, "error: lower: the schedule left linalg.generic"),
    "compile": (4, "error: compile: no symbol named foo"),
    "run": (4, "error: run: an argument has another shape"),
    "bug": (70, "Traceback ..."),
    "memory": (4, "error: run: DefaultCPUAllocator: can't allocate memory"),
}


def main(arguments: list[str]) -> int:
    how = Path(arguments[0]).stem.split("_", 1)[1]
    print("asked", *arguments)
    if how == "turn":
        with turn_to_time():
            print("turns are handed out:", TURN_VARIABLE in os.environ)
    if how == "hang":
        time.sleep(60)
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    code, message = ENDS.get(how, (0, ""))
    if message:
        print(message, file=sys.stderr)
    return code
