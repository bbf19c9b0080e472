from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmark.manifest import Manifest
from kernelmark.manifest.levels.benchmarks import check_coverage
from kernelmark.records import (
    FORMAT_VERSION,
    Cache,
    Check,
    DeviceRecord,
    Environment,
    Protocol,
    Role,
    Row,
    RunHeader,
    RunWriter,
    Statistics,
    StoredRun,
    Timing,
    read_run,
)
from kernelmark.report.notes import note_text

TIME = Statistics(samples=1, median_ns=5, mean_ns=5, min_ns=5, max_ns=5)
TIMING = Timing(timer="host", cache=Cache.COLD, device_busy=TIME, latency=TIME)
FIRST = "BmmFwdOp-llama3-8b-scores-float16-int32"
SECOND = "BmmFwdOp-llama3-8b-scores-bfloat16-int64"
THIRD = "BmmFwdOp-plain-float32-int32"


def _row(case: str, **changed: Any) -> Row:
    fields: dict[str, Any] = {
        "case": case,
        "op": "BmmFwdOp",
        "implementation": "mylib",
        "role": Role.OURS,
        "check": Check.VERIFIED,
        "timing": TIMING,
    }
    return Row(**fields | changed)


def _stored(folder: Path, *rows: Row, verify_only: bool = False) -> StoredRun:
    header = RunHeader(
        format_version=FORMAT_VERSION,
        run="r",
        started="2025-01-01T00:00:00Z",
        device=DeviceRecord(kind="fake", name="fake"),
        environment=Environment(kernelmark="0", python="3", platform="p"),
        protocol=Protocol(
            timer="host",
            cache=Cache.COLD,
            blocks=1,
            warmup_ms=1,
            sample_ms=1,
            prepare_ms=1,
            min_count=1,
            max_count=1,
            verify_only=verify_only,
        ),
    )
    writer = RunWriter.create(folder / "run", header)
    for row in rows:
        writer.row(row)
    writer.close()
    return read_run(folder / "run")


@pytest.mark.spec("T38")
def test_a_run_that_measured_every_case_covers_the_manifest(manifest: Manifest, tmp_path: Path) -> None:
    result = check_coverage(manifest, _stored(tmp_path, *map(_row, (FIRST, SECOND, THIRD))), note_text)
    assert (result.checked, result.what, result.findings) == (3, "cases measured", ())


@pytest.mark.spec("T38")
def test_a_case_without_a_time_is_named_with_the_reason(manifest: Manifest, tmp_path: Path) -> None:
    failed = _row(SECOND, check=Check.FAILED, timing=None, note="off by 3")
    result = check_coverage(manifest, _stored(tmp_path, _row(FIRST), failed), note_text)
    assert result.checked == 1
    assert [(e.where.rpartition(" ")[2], e.message) for e in result.errors] == [
        (SECOND, "not measured: mylib failed: off by 3"),
        (THIRD, "not measured: the run has no row of it"),
    ]


def test_a_case_is_measured_if_any_of_its_rows_has_a_time(manifest: Manifest, tmp_path: Path) -> None:
    missing = _row(
        FIRST, implementation="vendor", role=Role.BASELINE, check=Check.UNAVAILABLE, timing=None, note="n"
    )
    assert check_coverage(manifest, _stored(tmp_path, missing, _row(FIRST)), note_text).checked == 1


def test_a_run_that_only_checked_measured_nothing(manifest: Manifest, tmp_path: Path) -> None:
    result = check_coverage(
        manifest, _stored(tmp_path, _row(FIRST, timing=None), verify_only=True), note_text
    )
    assert result.checked == 0
    assert result.errors[0].message == "not measured: the run only checked, it did not time"


def test_a_case_that_the_manifest_no_longer_has_is_a_note(manifest: Manifest, tmp_path: Path) -> None:
    other = _row("quick-comparison", op=None)
    result = check_coverage(manifest, _stored(tmp_path, _row("BmmFwdOp-gone-float16"), other), note_text)
    (note,) = result.notes
    assert (
        "measured case BmmFwdOp-gone-float16 of BmmFwdOp, which this manifest does not have" in note.message
    )
