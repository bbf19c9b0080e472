"""Files that are there completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.files import draft, replace


def test_a_file_is_replaced_with_its_line_ends_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    replace(path, "eins\nzwei µs\r\n")
    replace(path, "drei µs\r\n")
    assert path.read_bytes() == "drei µs\r\n".encode()
    replace(path, b"\xff")
    assert path.read_bytes() == b"\xff"
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]


def test_an_error_leaves_the_file_that_was_there_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    replace(path, "first")
    with pytest.raises(UnicodeEncodeError), draft(path) as partial:
        partial.write_text("half of it, and then \ud800", encoding="utf-8")
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]


def test_a_draft_that_nobody_wrote_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), draft(tmp_path / "library.so"):
        pass


def test_a_folder_that_is_not_there_is_named_by_the_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        replace(tmp_path / "nowhere" / "report.md", "text")
