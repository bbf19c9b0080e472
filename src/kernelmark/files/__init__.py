"""Files: written completely or not at all; and, by their modules' names, YAML with the line of each field.

The YAML half needs PyYAML and pydantic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelmark.errors import RecordError, UsageError

__all__ = ["draft", "replace", "write_new"]


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Give a place beside ``path`` to write to; what is there at the end takes the place of ``path`` in one step.

    After an error ``path`` is as it was, and the draft is gone.

    Raises:
        OSError: the draft cannot take its place; nothing was written at all, for one.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            partial.unlink(missing_ok=True)
        raise


def replace(path: Path, content: str | bytes) -> None:
    r"""Write ``content``, text as UTF-8 with line ends as they are: all of it, or nothing and what was there before.

    Raises:
        OSError: the file cannot be written.
    """
    with draft(path) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_new(texts: Mapping[Path, str]) -> None:
    """Write files, with the folders that they need, where none of them is yet.

    Raises:
        UsageError: one is there already; nothing is written.
        RecordError: one cannot be written.
    """
    if there := [str(path) for path in texts if path.exists()]:
        raise UsageError(f"this would overwrite {' and '.join(there)}; name another folder")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}; name another folder") from error
