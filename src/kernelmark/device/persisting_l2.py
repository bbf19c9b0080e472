"""Takes back the L2 lines that a kernel asked to persist, so that a flush evicts them like any other.

A kernel may mark its inputs as persisting, and they then survive the reading of other data: on an H200 a
third of 8 MiB stayed through a flush of twice the L2. The driver's reset makes them ordinary lines again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from kernelmark.errors import TimingError

__all__ = ["PersistingL2"]

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class PersistingL2:
    """The driver's reset on one device; ``reason`` says why it cannot be had, where it cannot.

    The driver's library is asked, not the CUDA runtime, of which a process may hold several copies.

    The reset takes effect at once, not in the order of the stream, and does not wait for the device: 3 µs of
    host time. That it works in a pipeline of rounds nobody waits for was measured all the same.
    """

    def __init__(self, index: int) -> None:
        import torch

        self.reason = ""
        self._device = torch.cuda.device(index)
        self._capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._reset = _find_reset()
        if self._reset is None:
            self.reason = f"{_LIBRARY} has no cuCtxResetPersistingL2Cache"
            return
        torch.zeros(1, device=f"cuda:{index}")  # the driver's calls want a context, which torch makes lazily
        error = self._call()
        if error:
            self.reason = f"cuCtxResetPersistingL2Cache gave CUDA error {error}"
            self._reset = None

    def __call__(self) -> None:
        """Reset; does nothing while a graph is captured, since a replay could not repeat it.

        Raises:
            TimingError: it worked before and does not now, so that cold can no longer be vouched for.
        """
        if self._reset is None or self._capturing():
            return
        error = self._call()
        if error:
            raise TimingError(
                f"the persisting lines of the L2 could not be reset (CUDA error {error}), so a cold cache"
                " cannot be promised; an earlier call may have broken the CUDA context"
            )

    def _call(self) -> int:
        with self._device:
            return self._reset() if self._reset is not None else 0


def _find_reset() -> Callable[[], int] | None:
    try:
        return ctypes.CDLL(_LIBRARY).cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return None
