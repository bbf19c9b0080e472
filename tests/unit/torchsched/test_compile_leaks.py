"""The script that looks for memory left behind finds none here, and finds some where there is some."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("torch_mlir")

from scripts import compile_leaks


def test_compiled_kernels_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was kept would hold 3.5 MB."""
    monkeypatch.setattr(sys, "argv", ["compile_leaks.py", "--count", "12", "--limit-kb", "500"])
    assert compile_leaks.main() == 0
    said = capsys.readouterr().out
    assert "12 kernels" in said
    assert "500 are allowed" in said


def test_kernels_that_are_kept_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[mmap.mmap] = []

    def keep(number: int) -> None:
        # mapped, since what malloc gives may be memory that tests before this one had freed
        kept.append(mmap.mmap(-1, 200 << 10))
        kept[-1].write(b"x" * (200 << 10))

    def keeping(_: str) -> Callable[[int], None]:
        return keep

    monkeypatch.setitem(compile_leaks.THROUGH, "text", keeping)
    monkeypatch.setattr(sys, "argv", ["compile_leaks.py", "--count", "40"])
    assert compile_leaks.main() == 1
    grown = re.search(r"grew by ([\d.]+) KB", capsys.readouterr().out)
    assert grown is not None
    assert 100 < float(grown[1]) < 300
