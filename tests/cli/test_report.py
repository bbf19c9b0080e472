"""``kernelmark report`` as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.records import RECORDS_FILE, read_run
from kernelmark.report import Format, render

RUN = Path(__file__).resolve().parents[1] / "data" / "run_v1"
SUITE = RUN.parent / "suite_v1"


def report(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelmark", "report", *map(str, arguments)],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


@pytest.mark.parametrize("form", list(Format))
def test_each_format_writes_what_the_library_renders(form: Format):
    done = report(RUN, "--format", form.value)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render(read_run(RUN), form)


def test_the_console_is_the_format_nobody_has_to_ask_for():
    assert report(RUN).stdout == report(RUN, "--format", "console").stdout
    assert report(RUN / RECORDS_FILE).stdout == report(RUN).stdout


def test_output_goes_to_a_file_and_leaves_the_console_alone(tmp_path: Path):
    file = tmp_path / "report.csv"
    file.write_text("what was there before")
    done = report(RUN, "--format", "csv", "--output", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))) == 9
    assert [each.name for each in tmp_path.iterdir()] == ["report.csv"]


@pytest.mark.parametrize("place", ["missing/report.md", "taken/report.md", "."])
def test_a_file_that_cannot_be_written_ends_with_3_and_leaves_nothing(tmp_path: Path, place: str):
    (tmp_path / "taken").write_text("a file")
    done = report(RUN, "--format", "markdown", "--output", tmp_path / place)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: cannot write ")
    assert done.stderr.endswith("choose another place\n")
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_output_can_go_to_a_pipe_that_has_a_name():
    done = report(RUN, "--format", "csv", "--output", "/proc/self/fd/1")
    assert (done.returncode, done.stdout) == (0, render(read_run(RUN), Format.CSV))


@pytest.mark.parametrize("place", ["nowhere", "an empty folder"])
def test_a_run_that_is_not_there_ends_with_3_and_says_what_to_name(tmp_path: Path, place: str):
    (tmp_path / "an empty folder").mkdir()
    done = report(tmp_path / place)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: cannot read ")
    assert "name a folder that holds a run" in done.stderr


def test_a_corrupt_run_ends_with_3_and_the_line(tmp_path: Path):
    lines = (RUN / RECORDS_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / RECORDS_FILE).write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[3:]]))
    done = report(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{RECORDS_FILE}:4: not JSON" in done.stderr


@pytest.mark.parametrize("form", list(Format))
def test_a_run_cut_short_is_rendered_with_a_warning_and_ends_with_0(tmp_path: Path, form: Format):
    whole = (RUN / RECORDS_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / RECORDS_FILE).write_bytes(b"".join(whole[:4]) + whole[4][:100])
    done = report(tmp_path, "--format", form.value)
    assert done.returncode == 0
    assert "vllm" in done.stdout
    assert f"{RECORDS_FILE} ends inside a line; that row is lost" in done.stderr
    assert "the run was cut short" in done.stderr
    if form is Format.JSON:
        assert json.loads(done.stdout)["truncated"] is True
    elif form is not Format.CSV:
        assert "the file ends inside a line" in done.stdout


def test_symbols_that_the_terminal_lacks_do_not_stop_the_report():
    done = subprocess.run(
        [sys.executable, "-m", "kernelmark", "report", str(RUN)],
        capture_output=True,
        check=False,
        encoding="iso-8859-1",
        env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "18.38 µs" in done.stdout
    assert "? failed" in done.stdout


def on_a_terminal(columns: int, **environment: str) -> str:
    """Give what the report writes to a terminal of that many columns."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelmark", "report", str(RUN)],
        stdout=other,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment},
    )
    os.close(other)
    written = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        written += part
    os.close(main)
    assert process.wait() == 0
    return written.decode()


def test_a_terminal_gets_colour_and_only_as_many_columns_as_it_has():
    written = on_a_terminal(80)
    assert "\x1b[" in written
    assert "p10" not in written
    assert "ratio [low, high]" in written
    assert "p10" in on_a_terminal(180)


def test_a_terminal_that_wants_no_colour_still_tells_checked_from_unchecked():
    written = on_a_terminal(80, NO_COLOR="1")
    assert "\x1b[3" not in written
    assert "! unverified" in written
    assert "✗ failed" in written


def _changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write the kept run anew, each of its records as ``change`` leaves it."""
    folder.mkdir()
    records = [json.loads(line) for line in (RUN / RECORDS_FILE).read_bytes().splitlines()]
    for each in records:
        change(each)
    (folder / RECORDS_FILE).write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


def _slower(record: dict[str, Any]) -> None:
    if ratio := record.get("ratio"):
        scale = {"value": 0.5, "low": 0.5, "high": 0.5}
        ratio.update({key: ratio[key] * factor for key, factor in scale.items() if ratio.get(key)})
        ratio.update(block_ratios=[each / 2 for each in ratio.get("block_ratios", ())])


def test_against_itself_a_run_has_changed_nowhere():
    done = report(RUN, "--against", RUN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "No row's check changed." in done.stdout
    assert "ours is faster beside sglang than before in 0 and slower in 0" in done.stdout


def test_against_an_older_run_what_is_slower_ends_with_1_and_is_named(tmp_path: Path):
    slower = _changed(tmp_path / "slower", _slower)
    file = tmp_path / "against.md"
    done = report(slower, "--against", RUN, "--format", "markdown", "--output", file)
    assert (done.returncode, done.stdout) == (1, "")
    page = file.read_text(encoding="utf-8")
    assert "than before in 0 and slower in" in page
    assert "| slower |" in page
    assert report(RUN, "--against", slower).returncode == 0  # and the other way round it is faster


def test_runs_whose_ratios_mean_different_things_are_not_compared(tmp_path: Path):
    def elsewhere(record: dict[str, Any]) -> None:
        if record["kind"] == "header":
            record["device"]["name"] = "another card"

    other = _changed(tmp_path / "other", elsewhere)
    done = report(RUN, "--against", other)
    assert (done.returncode, done.stdout) == (3, "")
    assert "device.name is 'another card' and " in done.stderr
    done = report(RUN, "--against", other, "--ignore", "device.name")
    assert done.returncode == 0
    assert "device.name: another card before, " in done.stdout


@pytest.mark.parametrize("form", [Format.JSON, Format.CSV])
def test_two_runs_are_compared_for_people_only(form: Format):
    done = report(RUN, "--against", RUN, "--format", form.value)
    assert (done.returncode, done.stdout) == (2, "")
    assert "two runs are compared as console or markdown" in done.stderr


def test_a_suite_is_compared_with_a_suite_only():
    done = report(RUN, "--against", SUITE)
    assert done.returncode == 2
    assert "is a run of a suite" in done.stderr


def test_a_suite_against_an_older_run_of_it_ends_with_1_where_a_kernel_is_worse(tmp_path: Path):
    worse = shutil.copytree(SUITE, tmp_path / "worse")
    outcomes = worse / "outcomes.jsonl"
    outcomes.write_text(outcomes.read_text().replace('"verified"', '"wrong"', 1))
    done = report(worse, "--against", SUITE)
    assert (done.returncode, done.stderr) == (1, "")
    assert "No kernel's status changed." not in done.stdout
    assert report(SUITE, "--against", worse).returncode == 0  # and the other way round it is better
    assert report(SUITE, "--against", SUITE).returncode == 0
