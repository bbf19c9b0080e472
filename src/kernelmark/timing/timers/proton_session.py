"""Triton's Proton: one session at a time, opened in the way that Triton 3.6 to 3.9 share, read from its file.

Triton 3.6 can neither give a session's data nor flush without ending it, so a session is ended and the
``.hatchet`` file it writes is read. What the tree means belongs to ``proton_tree``.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelmark.errors import InstrumentConflictError, TimingError
from kernelmark.probe import require_module
from kernelmark.timing.profilers import Profiler, note_use, refuse_after_others

__all__ = ["ProtonApi", "ProtonSession"]


@dataclass(slots=True)
class ProtonSession:
    """A session that is open; ``database`` is there once it has ended without an error."""

    scope: Callable[[str], contextlib.AbstractContextManager[Any]]
    database: list[Any] = field(default_factory=list)


class ProtonApi:
    """The process's hold on Proton.

    Raises:
        UnavailableError: Triton, or its profiler, is not installed.
        InstrumentConflictError: another profiler came first, or a session of somebody else is open.
    """

    def __init__(self) -> None:
        self._api: Any = require_module("triton.profiler", extra="triton")
        self._flags: Any = require_module("triton.profiler.flags", extra="triton").flags
        refuse_after_others(Profiler.PROTON)
        if self._flags.profiling_on:
            raise InstrumentConflictError(
                "a Proton session is open in this process already, and what kernelmark reads would end up in it: end"
                " it (triton.profiler.finalize()) before timing with Proton"
            )
        note_use(Profiler.PROTON)

    @contextmanager
    def session(self) -> Iterator[ProtonSession]:
        """Profile the ``with`` block; the session is ended also after an error, which stays the error.

        The caller waits for the device before the block ends.
        """
        with tempfile.TemporaryDirectory(prefix="kernelmark-proton-") as folder:
            number = self._start(str(Path(folder) / "profile"))
            session = ProtonSession(self._api.scope)
            try:
                yield session
            except BaseException as first:
                try:
                    self._end(number)
                except Exception as second:  # noqa: BLE001 - told with the first error, which says more
                    first.add_note(f"ending the Proton session failed too: {second!r}")
                raise
            self._end(number)
            session.database = _read(Path(folder))

    def _start(self, name: str) -> int:
        try:
            number = self._api.start(name, context="shadow", data="tree")
        except RuntimeError as error:
            self._flags.profiling_on = False
            raise InstrumentConflictError(
                f"Proton could not start ({error}): another profiler has been used in this process before it, such as"
                " torch.profiler or anything else that reads CUPTI. Use a process in which Proton comes first, or ask"
                " for kineto, cupti or device_events"
            ) from error
        if number is None:
            self._flags.profiling_on = False
            raise TimingError(
                "Proton opened no session: it is switched off (TRITON_PROTON_DISABLE, or this script was started by the"
                " proton command); switch it on, or ask for kineto, cupti or device_events"
            )
        return number

    def _end(self, number: int) -> None:
        try:
            self._api.finalize(number, output_format="hatchet")
        finally:
            self._flags.profiling_on = False  # ending one session leaves it on, and no other is open


def _read(folder: Path) -> list[Any]:
    files = list(folder.glob("*.hatchet"))
    if len(files) != 1:
        raise TimingError(
            f"Proton wrote {len(files)} hatchet files at the end of its session rather than one; no time is given"
        )
    return json.loads(files[0].read_text(encoding="utf-8"))
