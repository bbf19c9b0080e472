"""The multiply-add ceiling of a CPU: the fastest loop that the processor runs, per dtype and number of threads.

``multiply_add.c`` holds the loops; it is built for this processor by the C compiler that is here, and run as a program
of its own, so that an instruction that the system refuses ends that program and not this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelmark.roofline import Rate

__all__ = ["Loop", "c_compiler", "multiply_add_rates"]

_SOURCE = Path(__file__).with_name("multiply_add.c")
_FOR_THIS_PROCESSOR = ("-march=native", "-mcpu=native")  # some compilers for Arm know only the second
_LIMIT_S = 60.0
"""Ten times what building takes; the loops run for some seconds in all."""


@dataclass(frozen=True, slots=True)
class Loop:
    """How many operations per second a loop of multiply-adds reached, and with which instruction."""

    per_s: float
    instruction: str


def c_compiler() -> str | None:
    """Give the C compiler: ``CC``, or the first of the usual ones that is installed."""
    named = os.environ.get("CC", "").split()[:1]
    return next(filter(None, map(shutil.which, named or ("cc", "gcc", "clang"))), None)


def multiply_add_rates(threads: int, seconds: float) -> dict[Rate, Loop]:
    """Run the loops of every dtype that this processor multiplies, each for ``seconds`` on ``threads`` threads.

    Nothing comes of it where there is no C compiler, or none that builds the loops. A number narrower than float32 can
    be multiplied as float32 too, so its rate is never below that one's.
    """
    compiler = c_compiler()
    if compiler is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="kernelmark-multiply-add-") as folder:
        program = Path(folder) / "multiply_add"
        if not any(_built(compiler, option, program) for option in _FOR_THIS_PROCESSOR):
            return {}
        return _best_of(_output([program, str(threads), str(seconds)]) or "")


def _best_of(output: str) -> dict[Rate, Loop]:
    found: dict[Rate, Loop] = {}
    for dtype, instruction, per_s in map(str.split, output.splitlines()):
        loop, rate = Loop(float(per_s), instruction), Rate(dtype)
        found[rate] = max(found.get(rate, loop), loop, key=lambda each: each.per_s)
    if plain := found.get(Rate.FLOAT32):
        as_float32 = Loop(plain.per_s, f"{plain.instruction} as float32")
        for rate in (Rate.FLOAT16, Rate.BFLOAT16):
            found[rate] = max(found.get(rate, as_float32), as_float32, key=lambda each: each.per_s)
    return found


def _built(compiler: str, option: str, program: Path) -> bool:
    flags = ("-O3", option, "-ffp-contract=fast", "-pthread")
    return _output([compiler, *flags, "-o", program, _SOURCE]) is not None


def _output(command: list[str | Path]) -> str | None:
    """Give what ``command`` writes, ``None`` where it fails; what it had written before it died counts."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 or ended.stdout else None
