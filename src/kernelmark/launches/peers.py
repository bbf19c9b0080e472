"""Whether processes of this machine are still there; it knows nothing of ranks that measure.

A process that was killed and not yet waited for still has its number, so a number alone proves nothing. A handle
of the kernel does: it becomes readable when its process ends, whoever waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import weakref
from collections.abc import Mapping

__all__ = ["Peers", "this_process"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"


def this_process() -> str:
    """Say who this process is, for others on the same machine."""
    where = []
    with contextlib.suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:
        where = [file.read().strip(), os.readlink(_PID_NAMESPACE)]
    return json.dumps({"pid": os.getpid(), "where": where})


class Peers:
    """Other processes by rank, as ``this_process`` described them; those of other machines are not watched.

    Where the system has no such handles (they came with Linux 5.3), nobody is watched.
    """

    def __init__(self, described: Mapping[int, str]) -> None:
        own = json.loads(this_process())["where"]
        self._handles: dict[int, int] = {}
        for rank, text in described.items():
            told = json.loads(text)
            if own and told["where"] == own and hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):  # it has ended already, or this kernel has no handles
                    self._handles[os.pidfd_open(told["pid"])] = rank
        weakref.finalize(self, _close, tuple(self._handles))

    def ended(self) -> list[int]:
        """Give the ranks whose process is gone; does not wait."""
        poll = select.poll()
        for handle in self._handles:
            poll.register(handle, select.POLLIN)
        return sorted(self._handles[handle] for handle, _ in poll.poll(0))


def _close(handles: tuple[int, ...]) -> None:
    for handle in handles:
        os.close(handle)
