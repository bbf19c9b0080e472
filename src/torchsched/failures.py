"""What a failing stage says: its error class, the operation, and the line of the model it came from.

A stage hands over the text of the compiler's diagnostics; this module finds in it what the message needs. It knows
no stage's work. MLIR raises most diagnostics as part of ``MLIRError``; what LLVM, its JIT and a few passes write
goes to file descriptor 2 behind Python's back, and :func:`captured_stderr` catches that.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import BinaryIO

from kernelmark.errors import (
    ModelCompileError,
    ModelError,
    ModelImportError,
    ModelLoweringError,
    ModelRunError,
)

__all__ = ["CapturedText", "Stage", "captured_stderr", "failure", "op_in", "source_in"]

SHOWN = 2_000
"""Characters of diagnostics that a message shows; "see current operation" can print a whole module."""


class Stage(StrEnum):
    """What a model goes through, in order."""

    IMPORT = "import"
    LOWER = "lower"
    COMPILE = "compile"
    RUN = "run"


_ERRORS: dict[Stage, type[ModelError]] = {
    Stage.IMPORT: ModelImportError,
    Stage.LOWER: ModelLoweringError,
    Stage.COMPILE: ModelCompileError,
    Stage.RUN: ModelRunError,
}


def failure(
    stage: Stage, message: str, *, diagnostics: str = "", op: str | None = None, source: str | None = None
) -> ModelError:
    """Build the error of ``stage``; the caller raises it, from the exception that it caught.

    Args:
        stage: Where it happened.
        message: What was asked, what was found, what to do.
        diagnostics: What the compiler said; the operation and the line are read from it where not given.
        op: The operation it stopped at.
        source: ``file:line`` in the model.
    """
    op = op or op_in(diagnostics)
    source = source or source_in(diagnostics)
    parts = [f"{stage}: {message}"]
    if op and op not in message:
        parts.append(f"operation: {op}")
    if diagnostics.strip():
        parts.append(_cut(diagnostics.strip()))
    return _ERRORS[stage]("\n".join(parts), op=op, source=source)


_OP = (
    re.compile(r"failed to legalize operation '([\w.]+)'"),
    re.compile(r"'([\w]+\.[\w.]+)' op "),
    re.compile(r"Operation not supported: ([\w.:]+)"),
    re.compile(r"unregistered operation '([\w.]+)'"),
    re.compile(r'see current operation:\s*(?:%[^=\n]*= )?"?([a-z_]\w*\.[\w.]+)'),
)
_PLACE = re.compile(r'"((?:/|[A-Za-z]:\\)[^"\n]+\.py)":(\d+)')
"""A place as MLIR prints it: ``"/tmp/model.py":12:0``. Only Python files: others are the compiler's own."""


def op_in(diagnostics: str) -> str | None:
    """Find the operation that diagnostics complain of; torch's by torch's name (``aten.sort``)."""
    found = [match for pattern in _OP if (match := pattern.search(diagnostics))]
    if not found:
        return None
    name = found[0][1]
    if name == "torch.operator":
        # What torch-mlir has no class for is an operation of this class, with the name as an attribute.
        named = re.search(r'name = "([\w.]+)"', diagnostics)
        name = named[1] if named else name
    return name.removeprefix("torch.")


def source_in(diagnostics: str) -> str | None:
    """Find ``file:line`` of the model: the first place in diagnostics that is no library's."""
    places = [(file, line) for file, line in _PLACE.findall(diagnostics)]
    own = [place for place in places if "site-packages" not in place[0]] or places
    return f"{own[0][0]}:{own[0][1]}" if own else None


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n... ({len(text) - SHOWN} characters more)"


# --- file descriptor 2 ----------------------------------------------------------------------------


class CapturedText:
    """What was written to file descriptor 2 so far; asking for it counts as having dealt with it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.taken = 0

    def take(self) -> str:
        """Give what was written since the last call."""
        raw = self._since()
        self.taken += len(raw)
        return raw.decode(errors="replace")

    def rest(self) -> bytes:
        """Give what was written and not taken."""
        return self._since()

    def _since(self) -> bytes:
        # The descriptor's own offset is what the writers move: read by position.
        size = os.fstat(self._file.fileno()).st_size
        return os.pread(self._file.fileno(), size - self.taken, self.taken)


_captures = threading.RLock()
"""One capture at a time: descriptor 2 belongs to the process, and two swaps would undo each other wrongly."""


@contextmanager
def captured_stderr() -> Iterator[CapturedText]:
    """Catch what this process writes to descriptor 2 meanwhile; at the end, what nobody took is written after all.

    Captures of several threads run one after the other. What other threads write meanwhile is caught too, and
    comes out at the end.
    """
    with _captures, tempfile.TemporaryFile(buffering=0) as file:
        _flush()
        outside = os.dup(2)
        text = CapturedText(file)
        try:
            os.dup2(file.fileno(), 2)
            try:
                yield text
            finally:
                _flush()
                os.dup2(outside, 2)
                rest = text.rest()
                while rest:
                    rest = rest[os.write(2, rest) :]
        finally:
            os.close(outside)


def _flush() -> None:
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.flush()
