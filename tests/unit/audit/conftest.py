"""Settings and readings made of numbers, for what needs no device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.audit.instruments import calls_for, instruments_for
from kernelmark.audit.result import Reading, Setting
from kernelmark.records import DeviceRecord, Environment


@pytest.fixture(scope="session")
def setting() -> Callable[..., Setting]:
    """Make a setting for a kind of device."""

    def make(kind: str = "cuda", *, only: tuple[str, ...] = (), runs: int = 3, **more: object) -> Setting:
        facts: dict = {
            "device": DeviceRecord(kind=kind, name="A | device"),
            "environment": Environment(kernelmark="0.1.0", python="3.11", platform="Linux"),
            "made": "2026-03-01T12:00:00+00:00",
            "default_timer": "host" if kind == "cpu" else "cupti",
            "calls": calls_for(kind),
            "instruments": tuple(each for each in instruments_for(kind) if not only or each.name in only),
            "runs": runs,
            "references": ("ncu", "cupti"),
        }
        return Setting(**{**facts, **more})

    return make


@pytest.fixture(scope="session")
def read_all() -> Callable[..., list[Reading]]:
    """Read every call with one instrument: each run gives the call's base time with a factor."""
    bases = (1_000, 4_000, 124_000, 174_000, 55_000)

    def make(
        instrument: str, *factors: float, kind: str = "cuda", cost_s: float | None = 0.2
    ) -> list[Reading]:
        return [
            Reading(instrument, call.name, run, base * factor, 100, cost_s)
            for run, factor in enumerate(factors)
            for call, base in zip(calls_for(kind), bases, strict=True)
        ]

    return make
