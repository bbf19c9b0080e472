"""The OpenMP runtime at work: loaded once, beside torch's own, and told how its threads wait.

Finding it is :mod:`torchsched.openmp`'s. This module knows nothing of what runs in parallel.

A child made by ``fork`` may go on calling compiled code: LLVM's runtime starts its threads anew there. torch's
libgomp does not, so such a child must not call torch in parallel if its parent has.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from kernelmark.errors import UnavailableError
from torchsched.openmp import find_openmp

__all__ = ["BLOCKTIME_MS", "OpenMP", "load_openmp", "loaded_openmp"]

BLOCKTIME_MS = 1
"""How long an idle worker spins before it sleeps; the runtime's own default is 200 ms.

Waking a sleeping one took 40 to 70 µs on two cores (``studies/openmp_waiting.py``: at best 67 µs a call with 0, and
26 with 1, 5 and 200), and a model has many parallel regions, one soon after the other. Longer spinning would take
cores from whatever else is timed in the same process: torch has threads of its own.
"""

_loaded: list[OpenMP] = []


@dataclass(frozen=True, slots=True)
class OpenMP:
    """A loaded runtime."""

    path: str
    library: ctypes.CDLL
    blocktime: str
    """How long its idle workers spin, as ``KMP_BLOCKTIME`` says it."""

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}, idle workers spin for {self.blocktime} ms"

    @property
    def max_threads(self) -> int:
        """How many threads a parallel region that this thread opens would get."""
        return self.library.omp_get_max_threads()


@lru_cache(maxsize=1)
def load_openmp() -> OpenMP:
    """Load the runtime and set it up; ``KMP_BLOCKTIME``, where the environment has it, is left alone.

    Raises:
        UnavailableError: there is none, or it cannot be loaded.
    """
    found = find_openmp()
    if not found:
        raise UnavailableError(f"parallel code needs an OpenMP runtime: {found.detail}")
    try:
        # Not into the global scope: it has libgomp's names too, and torch must keep its own.
        library = ctypes.CDLL(found.detail, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise UnavailableError(f"the OpenMP runtime {found.detail} cannot be loaded: {error}") from error
    with _environment("KMP_BLOCKTIME", str(BLOCKTIME_MS)) as blocktime:
        library.omp_get_max_threads()  # the first call reads the environment
    runtime = OpenMP(found.detail, library, blocktime)
    _loaded.append(runtime)
    return runtime


def loaded_openmp() -> OpenMP | None:
    """Give the runtime if something has loaded it, for the record of what ran; ``None`` otherwise."""
    return _loaded[0] if _loaded else None


@contextmanager
def _environment(name: str, value: str) -> Iterator[str]:
    """Set a variable that is not set, for the time being; gives the value in force."""
    if name in os.environ:
        yield os.environ[name]
        return
    os.environ[name] = value
    try:
        yield value
    finally:
        del os.environ[name]
