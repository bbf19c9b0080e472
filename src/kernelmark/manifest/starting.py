"""Writes an op library of one op, to start from: what ``kernelmark ops init`` leaves in a folder."""

from __future__ import annotations

import keyword
from pathlib import Path

from kernelmark.errors import RecordError, UsageError

__all__ = ["write_library"]

_TEMPLATES = Path(__file__).parent / "starter"
_NAME = "mylib"
_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    f"{_NAME}/__init__.py": "ops.py.txt",
    "manifest/rows.yaml": "rows.yaml",
    "benchmarks/cases/__init__.py": "",
    "benchmarks/cases/rows.py": "cases.py.txt",
    "benchmarks/bench_rows.py": "bench_rows.py.txt",
    ".gitignore": "gitignore.txt",
}
"""What is written, and from which template; Python ends in .txt there, since it is no module of this package."""


def write_library(folder: Path, name: str) -> tuple[Path, ...]:
    """Write a library called ``name`` into ``folder``: declared, registered, checked and benchmarked at once.

    Raises:
        UsageError: ``name`` is no name of a module, or a file is there already; nothing is written.
        RecordError: the folder cannot be written.
    """
    if not (name.isascii() and name.isidentifier() and name == name.lower()) or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be a module's name; give --name with lower-case letters, digits and _"
        )
    texts = {
        folder / target.replace(_NAME, name): (_TEMPLATES / template).read_text() if template else ""
        for target, template in _FILES.items()
    }
    if there := [str(path) for path in texts if path.exists()]:
        raise UsageError(f"ops init would overwrite {' and '.join(there)}; name another folder")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(_NAME, name), encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot write into {folder}: {error.strerror}; name another folder") from error
    return tuple(texts)
