"""``kernelmark audit``: parses, calls :mod:`kernelmark.audit`, renders, and chooses the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelmark.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelmark.audit import Audit

__all__ = ["audit"]


@click.command()
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto is the best.")
@click.option("--repeat", default=5, show_default=True, help="How often each instrument reads each call.")
@click.option("--only", multiple=True, metavar="NAME", help="Read with this instrument; may be repeated.")
@click.option(
    "--against", metavar="NAME", help="Measure the others against this instrument; ncu where it is."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write audit.md and audit.json there, and what ncu and NVBench wrote.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def audit(
    context: click.Context,
    device: str,
    repeat: int,
    only: tuple[str, ...],
    against: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Read the same five calls with every instrument here, and show how far they are apart.

    Exits with 1 if an instrument that is here gave no reading, or if the default timer misses a limit; with 3
    if the device is not there.
    """
    from kernelmark.audit import AuditOptions, write_audit
    from kernelmark.audit import as_json as plain
    from kernelmark.audit import audit as read
    from kernelmark.device import open_device

    options = AuditOptions(runs=repeat, against=against, only=only, keep=out)
    found = read(
        open_device(device), options, told=lambda names: click.echo(f"reading with {names}", err=True)
    )
    if as_json:
        click.echo(json.dumps(plain(found), indent=2, ensure_ascii=False))
    else:
        _show(found)
    if out is not None:
        for path in write_audit(found, out):
            click.echo(f"written: {path}", err=as_json)
    context.exit(ExitCode.FAILED if found.doubts else ExitCode.OK)


def _show(found: Audit) -> None:
    from kernelmark.audit import audit_page
    from kernelmark.report.pages import page_text

    click.echo(page_text(audit_page(found)))
    judged = [each for each in found.limits if each.kept is not None]
    if found.limits:
        kept = sum(each.kept is True for each in judged)
        click.echo(
            f"limits: {kept} kept of {len(judged)} judged, {len(found.limits) - len(judged)} not judged"
        )
