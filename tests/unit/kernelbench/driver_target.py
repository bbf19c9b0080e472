"""Plays the run of one model in a worker, for test_driver.py: the model file's name says how it ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kernelmark import errors
from kernelmark.isolation import Channel, turn_to_time
from kernelmark.kernelbench.kernel import KernelAnswer, KernelJob
from kernelmark.models.request import unpacked
from kernelmark.records import Check

ENDS: dict[str, BaseException] = {
    "wrong": errors.VerificationError("the output differs from the reference: worst 3"),
    "usage": errors.UsageError("no such option"),
    "missing": errors.UnavailableError("torch-mlir is not installed"),
    "import": errors.ModelImportError("import: aten.fft_rfft is not known", source="/m/model.py:3"),
    "lower": errors.ModelLoweringError("lower: the schedule left linalg.generic"),
    "compile": errors.ModelCompileError("compile: no symbol named foo"),
    "run": errors.ModelRunError("run: an argument has another shape"),
    "bug": KeyError("nobody thought of it"),
    "memory": errors.OutOfMemoryError("memory ran out (RuntimeError: can't allocate memory)"),
    "doubt": errors.TimingError("the instrument lost records"),
}
HOLLOW = KernelAnswer(Check.UNVERIFIED, timed=False, note="the check is vacuous")


def play(job: KernelJob, channel: Channel) -> KernelAnswer:
    how = Path(unpacked(job.request).path).stem.split("_", 1)[1]
    print("asked", *job.command, flush=True)
    channel.stage("compile")
    if how == "turn":
        with turn_to_time() as note:
            print("turn:", note)
    if how == "hang":
        time.sleep(60)
    if how in ("crash", "killed"):
        os.kill(os.getpid(), signal.SIGSEGV if how == "crash" else signal.SIGKILL)
    if how in ENDS:
        raise ENDS[how]
    return HOLLOW if how == "hollow" else KernelAnswer(Check.VERIFIED, timed=False)
