"""A user's file is a module of its own each time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.harness.loading import forget_modules, load_module


def test_each_import_is_afresh_and_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text("class Model: ...\n")
    one, two = load_module(tmp_path / "mine.py"), load_module(tmp_path / "mine.py")
    assert one is not two
    assert sys.modules[one.Model.__module__] is one
    assert sys.path.count(str(tmp_path)) == 1
    forget_modules()
    assert one.__name__ not in sys.modules


def test_what_python_does_not_import_is_refused_and_an_error_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UsageError, match=r"must end in \.py"):
        load_module(tmp_path / "mine.txt")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_module(tmp_path / "bad.py")
