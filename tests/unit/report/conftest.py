"""Rows and runs to render: the stored one, and ones with a single thing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.records import (
    Cache,
    Check,
    Note,
    PassRecord,
    Role,
    Row,
    RunEnd,
    Statistics,
    StoredRun,
    Telemetry,
    Timing,
    read_run,
)


@pytest.fixture(scope="session")
def stored() -> StoredRun:
    """The run in tests/data."""
    return read_run(Path(__file__).parents[2] / "data" / "run_v1")


@pytest.fixture(scope="session")
def make_timing() -> Callable[..., Timing]:
    def make(
        busy: float = 1_000,
        *,
        before: Telemetry | None = None,
        after: Telemetry | None = None,
        **more: object,
    ) -> Timing:
        times = Statistics(samples=2, median_ns=busy, mean_ns=busy, min_ns=busy, max_ns=busy)
        passes = (
            PassRecord(
                block=0,
                position=0,
                latency_ns=(busy, busy),
                device_busy_ns=(busy, busy),
                before=before,
                after=after,
            ),
        )
        facts: dict = {
            "timer": "fake",
            "cache": Cache.COLD,
            "device_busy": times,
            "latency": times,
            "passes": passes,
        }
        return Timing(**{**facts, **more})

    return make


@pytest.fixture(scope="session")
def make_row() -> Callable[..., Row]:
    def make(name: str = "vllm", check: Check = Check.VERIFIED, **more: object) -> Row:
        facts: dict = {
            "case": "a case",
            "op": "AnOp",
            "implementation": name,
            "role": Role.BASELINE,
            "check": check,
            "note": "" if check.comparable else "the reason",
        }
        return Row(**{**facts, **more})

    return make


@pytest.fixture(scope="session")
def make_run(stored: StoredRun) -> Callable[..., StoredRun]:
    """Make a run that ended in order, with the header's fields changed as asked."""

    def make(
        *rows: Row, end: RunEnd | str | None = "completed", truncated: bool = False, **header: object
    ) -> StoredRun:
        if isinstance(end, str):
            end = RunEnd(ended="2026-03-01T12:00:09+00:00", rows=len(rows), outcome=end)  # type: ignore[arg-type]
        notes = tuple(map(Note.free, header.pop("notes", ())))  # type: ignore[call-overload]
        changed = stored.header.model_copy(update={"notes": notes, **header})
        return StoredRun(Path("a/records.jsonl"), changed, rows, end, truncated)

    return make
