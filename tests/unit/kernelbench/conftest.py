"""Stored runs of a suite, as a driver leaves them: the records are written by the writer of all records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kernelmark.kernelbench.results import (
    OUTCOMES,
    SuiteHeader,
    SuiteRun,
    begin,
    kernel_folder,
    read_suite_run,
)
from kernelmark.kernelbench.statuses import Outcome
from kernelmark.records import RunEnd, RunHeader, RunWriter, read_run
from tests.unit.kernelbench.made_up import Kernel, rows_of

STARTED, ENDED = "2026-11-29T10:00:00+00:00", "2026-11-29T10:30:00+00:00"


@pytest.fixture(scope="session")
def run_header() -> RunHeader:
    stored = read_run(Path(__file__).parents[2] / "data" / "run_v1").header
    protocol = stored.protocol.model_copy(update={"timer": "host"})
    device = stored.device.model_copy(update={"kind": "cpu", "name": "A CPU", "index": None, "threads": 2})
    return stored.model_copy(update={"protocol": protocol, "device": device})


Make = Callable[..., SuiteRun]


@pytest.fixture
def make_suite_run(tmp_path: Path, run_header: RunHeader) -> Make:
    """Write a run of the given kernels into a folder of its own, and read it back."""

    def make(kernels: Mapping[str, Kernel], *, name: str = "run", **facts: Any) -> SuiteRun:
        out = tmp_path / name
        header = SuiteHeader(
            run=name,
            started=STARTED,
            time_limit_s=300,
            memory_limit_bytes=8 << 30,
            command=("kernelmark", "kernelbench", "--level", "1"),
            root="/tree",
            **{"benchmark": True, "ended": ENDED, **facts},
        )
        begin(out, header, kernels, resume=False)
        for kernel, each in kernels.items():
            outcome = Outcome(kernel, each.pipeline, each.status, each.message, 1.5)
            with open(out / OUTCOMES, "a") as stream:
                stream.write(json.dumps(asdict(outcome)) + "\n")
            if each.ours_ns is not None:
                writer = RunWriter.create(kernel_folder(out, kernel), run_header)
                for row in rows_of(each):
                    writer.row(row)
                writer.end(RunEnd(ended=ENDED, rows=writer.rows))
        return read_suite_run(out)

    return make
