"""Writes a run as one JSON document: every record as it is stored, samples included, and the remarks.

Schema history
    1: schema, schema_version, header, rows, end, truncated, checks, remarks.
"""

from __future__ import annotations

import json

from kernelmark.records import StoredRun
from kernelmark.report.remarks import check_counts, remarks

__all__ = ["SCHEMA", "SCHEMA_VERSION", "json_report"]

SCHEMA = "kernelmark.report"
SCHEMA_VERSION = 1


def json_report(run: StoredRun) -> str:
    """Write ``run`` as JSON, one row a line, so that two reports can be compared by line."""
    rows = ",\n".join(row.model_dump_json() for row in run.rows)
    members = {
        "schema": _dump(SCHEMA),
        "schema_version": _dump(SCHEMA_VERSION),
        "header": run.header.model_dump_json(),
        "rows": f"[\n{rows}\n]" if rows else "[]",
        "end": run.end.model_dump_json() if run.end else "null",
        "truncated": _dump(run.truncated),
        "checks": _dump(check_counts(run.rows)),
        "remarks": _dump([{"subject": each.subject, "text": each.text} for each in remarks(run)]),
    }
    return "{\n" + ",\n".join(f"{_dump(name)}: {text}" for name, text in members.items()) + "\n}\n"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
