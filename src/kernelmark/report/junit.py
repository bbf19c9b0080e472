"""Writes one row as properties of a JUnit test case; knows nothing of pytest."""

from __future__ import annotations

from kernelmark.records import Row
from kernelmark.report.columns import COLUMNS, Value
from kernelmark.report.plain import visible

__all__ = ["junit_properties"]


def junit_properties(row: Row) -> list[tuple[str, str]]:
    """Give name and value of everything that ``row`` says: ``vllm.device_busy_ns``, ``vllm.check``, ...

    A test has one row per implementation, so the implementation's name comes first.
    """
    name = visible(row.implementation)
    values = [(column.key, column.get(row)) for column in COLUMNS]
    return [(f"{name}.{key}", _text(value)) for key, value in values if value is not None]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else visible(str(value))
