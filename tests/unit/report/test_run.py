"""A stored run is rendered again, and its reports stand beside its records."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernelmark.errors import RecordError
from kernelmark.records import RECORDS_FILE, StoredRun
from kernelmark.report import Format, render, write_report, write_reports


@pytest.fixture
def folder(tmp_path: Path, stored: StoredRun) -> Path:
    shutil.copy(stored.path, tmp_path / RECORDS_FILE)
    return tmp_path


def test_the_reports_stand_beside_the_records(folder: Path, stored: StoredRun):
    before = (folder / RECORDS_FILE).read_bytes()
    paths = write_reports(folder)
    assert [path.name for path in paths] == ["report.md", "report.json", "report.csv"]
    assert {path.name for path in folder.iterdir()} == {RECORDS_FILE, *(path.name for path in paths)}
    for path, form in zip(paths, (Format.MARKDOWN, Format.JSON, Format.CSV), strict=True):
        assert path.read_bytes() == render(stored, form).encode()
    assert (folder / RECORDS_FILE).read_bytes() == before


def test_rendering_again_gives_the_same_reports(folder: Path):
    first = [path.read_bytes() for path in write_reports(folder)]
    assert [path.read_bytes() for path in write_reports(folder)] == first


@pytest.mark.parametrize("form", list(Format))
def test_every_format_tells_every_row_with_its_check_and_ends_its_last_line(stored: StoredRun, form: Format):
    text = render(stored, form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    for row in stored.rows:
        assert row.implementation in text
        assert row.check.value in text


@pytest.mark.parametrize("form", list(Format))
def test_no_format_shows_a_ratio_that_the_record_does_not_hold(stored: StoredRun, form: Format):
    bare = StoredRun(
        stored.path,
        stored.header,
        tuple(row.model_copy(update={"ratio": None}) for row in stored.rows),
        stored.end,
    )
    text = render(bare, form)
    assert "1.19" not in text
    assert "faster" not in text.replace("ours is faster", "").replace("ours is faster or slower", "")


def test_a_folder_without_a_run_has_no_reports(tmp_path: Path):
    with pytest.raises(RecordError, match="name a folder that holds a run"):
        write_reports(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_written_names_its_path_and_leaves_the_old_one(tmp_path: Path):
    with pytest.raises(RecordError, match=r"cannot write .*report\.md: No such file.*choose another place"):
        write_report(tmp_path / "missing" / "report.md", "x")
    (tmp_path / "taken").mkdir()
    with pytest.raises(RecordError, match="cannot write"):
        write_report(tmp_path / "taken", "x")
    old = tmp_path / "report.md"
    old.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_report(old, "half a pair: \ud800")
    assert old.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"taken", "report.md"}


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path):
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_report(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_report(pipe, "a report")
        assert os.read(reading, 100) == b"a report"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
