"""Finds out which other processes are gone, and frees a device that waits for one which will never come.

A process that was killed and not yet waited for still has its number, so a number alone proves nothing. A handle of the
kernel does: it becomes readable when its process ends, whoever waits for it.

A collective on the device waits in a kernel, and a host that waits for that kernel cannot be interrupted: a rank whose
peer has died would wait until torch's own watchdog kills its process, ten minutes later and with all that was measured.
So a thread watches while the devices may be waiting for each other, and parts them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from enum import StrEnum

__all__ = ["DeviceWatch", "Loss", "Peers", "this_process"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"

_POLL_S = 0.25
_GRACE_S = 1.0
"""A round takes 15 ms. Who is there is asked only where one takes longer than this."""
_IDLE_POLLS = 40
"""After so many polls with nothing to watch the thread ends; the next ``arm`` starts another one."""


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


class Loss(StrEnum):
    """Why devices were parted."""

    ENDED = "ended"
    """A process is gone."""
    LEFT = "left"
    """A rank has said that it gives up."""
    SILENT = "silent"
    """Nobody is known to be gone, and the time limit is over."""


class DeviceWatch:
    """Watches from ``arm`` to ``disarm``; parts the devices at most once, and then ``loss`` says why.

    Args:
        look: Says whether a rank is known to be gone, and how.
        part: Makes the device give up waiting. It may take a while.
        limit_s: The longest time from ``arm`` to ``disarm``.
    """

    def __init__(
        self, look: Callable[[], Loss | None], part: Callable[[], object], *, limit_s: float
    ) -> None:
        self.loss: Loss | None = None
        self.trouble = ""
        """What went wrong in parting the devices."""
        self._look, self._part, self._limit_s = look, part, limit_s
        self._lock = threading.Lock()
        self._armed_at: float | None = None
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """The device may wait for others from now on."""
        with self._lock:
            self._armed_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kernelmark-watch", daemon=True)
                self._thread.start()

    def disarm(self) -> Loss | None:
        """The host is here again; say why the devices were parted, if they were."""
        with self._lock:
            self._armed_at = None
            return self.loss

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                armed_at = self._armed_at
                idle = 0 if armed_at is not None else idle + 1
                if idle >= _IDLE_POLLS:
                    self._thread = None
                    return
            if armed_at is None:
                continue
            waited_s = time.monotonic() - armed_at
            loss = self._find(waited_s) if waited_s > min(_GRACE_S, self._limit_s) else None
            if loss is not None and self._take(loss, armed_at):
                return

    def _find(self, waited_s: float) -> Loss | None:
        return self._look() or (Loss.SILENT if waited_s > self._limit_s else None)

    def _take(self, loss: Loss, armed_at: float) -> bool:
        """Part the devices, unless the host has moved on in the meantime."""
        with self._lock:
            if self._armed_at != armed_at:
                return False
            self.loss = loss
        try:
            self._part()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the rank tells it
            self.trouble = f"{type(error).__name__}: {error}"
        return True
