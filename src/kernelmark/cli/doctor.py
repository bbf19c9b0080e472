"""``kernelmark doctor``: parses, calls :mod:`kernelmark.doctor`, renders, and chooses the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kernelmark.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelmark.doctor import Finding

__all__ = ["CODES", "doctor", "plain"]

CODES = {
    "ok": ExitCode.OK,
    "note": ExitCode.OK,
    "warning": ExitCode.FAILED,
    "missing": ExitCode.ENVIRONMENT,
}
"""The gravest severity → how the command ends."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Say what this machine can measure, what not and why, and what mends it.

    Exits with 1 if something measures wrongly or with doubt, with 3 if something is missing that the best
    device here cannot be measured without.
    """
    from kernelmark.doctor import examine, read_machine, worst

    found = examine(read_machine())
    severity = worst(finding for findings in found.values() for finding in findings)
    if as_json:
        click.echo(json.dumps({"severity": severity, "findings": plain(found)}, indent=2, ensure_ascii=False))
    else:
        _show(found)
        click.echo(_SUMMARY[severity.value])
    context.exit(CODES[severity.value])


_SUMMARY = {
    "ok": "everything that this machine's best device needs works",
    "note": "everything that this machine's best device needs works; a note could be made better",
    "warning": "something here measures wrongly or with doubt: see the warnings",
    "missing": "something is missing that this machine's best device cannot be measured without",
}


def plain(found: Mapping[str, Sequence[Finding]]) -> list[dict[str, str]]:
    """Give the findings as values that JSON has."""
    return [{"subject": subject, **asdict(finding)} for subject in found for finding in found[subject]]


def _show(found: Mapping[str, Sequence[Finding]]) -> None:
    from rich.text import Text

    from kernelmark.cli.tables import echo_table, new_table

    table = new_table("subject", "what", "severity", "found, and the fix")
    for subject, findings in found.items():
        for row, finding in enumerate(findings):
            text = Text(finding.found)
            if finding.fix:
                text.append(f"\nfix: {finding.fix}")
            severity = Text(finding.severity.value, style=_STYLES[finding.severity.value])
            table.add_row(Text(subject if not row else ""), Text(finding.what), severity, text)
    echo_table(table)


_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "missing": "bold red"}
