"""``kernelmark doctor``, ``calibrate`` and ``audit``: what this machine and its instruments can tell.

Each parses, calls the room of its name, renders, and chooses the exit code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmark.cli import console
from kernelmark.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelmark.audit import Audit
    from kernelmark.calibration import Outcome

__all__ = ["SEVERITIES", "audit", "calibrate", "doctor"]

_BEST = "this machine's best device"
_LACKING = f"something is missing that {_BEST} cannot be measured without"
_DOUBTFUL = "something here measures wrongly or with doubt: see the warnings"
SEVERITIES = {
    "ok": (ExitCode.OK, "green", f"everything that {_BEST} needs works"),
    "note": (ExitCode.OK, "cyan", f"everything that {_BEST} needs works; a note could be made better"),
    "warning": (ExitCode.FAILED, "yellow", _DOUBTFUL),
    "missing": (ExitCode.ENVIRONMENT, "bold red", _LACKING),
}
"""The gravest severity → how ``doctor`` ends, its colour, and what it means."""


@click.command()
@console.as_json
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Say what this machine can measure, what not and why, and what mends it.

    Exits with 1 if something measures wrongly or with doubt, with 3 if something is missing that the best
    device here cannot be measured without.
    """
    from rich.text import Text

    from kernelmark.doctor import examine, read_machine, worst

    found = [(subject, each) for subject, findings in examine(read_machine()).items() for each in findings]
    severity = worst(finding for _, finding in found)
    code, _, summary = SEVERITIES[severity.value]
    if as_json:
        findings = [{"subject": subject, **asdict(finding)} for subject, finding in found]
        console.echo_json({"severity": severity, "findings": findings})
    else:
        rows: list[list[Text]] = []
        shown = ""
        for subject, each in found:
            told = each.found + (f"\nfix: {each.fix}" if each.fix else "")
            grave = Text(each.severity.value, style=SEVERITIES[each.severity.value][1])
            rows.append([Text("" if subject == shown else subject), Text(each.what), grave, Text(told)])
            shown = subject
        console.echo_table(("subject", "what", "severity", "found, and the fix"), rows)
        click.echo(summary)
    context.exit(code)


# --- calibrate


@click.command()
@console.device
@click.option("--quick", is_flag=True, help="Take a fraction of the time, and keep nothing.")
@console.as_json
@click.pass_context
def calibrate(context: click.Context, device: str, quick: bool, as_json: bool) -> None:
    """Measure a device's ceilings and its instruments, and keep the profile that the roofline uses.

    Exits with 1 if a reading is in doubt, with 3 if the device is not there or a CPU is too busy.
    """
    from kernelmark.calibration import calibrate as measure
    from kernelmark.device import open_device

    outcome = measure(open_device(device), quick=quick)
    if as_json:
        console.echo_json(_plain(outcome))
    else:
        click.echo(outcome.profile.name)
        console.echo_table(("ceiling", "short", "sustained"), _ceilings(outcome))
        click.echo()
        console.echo_table(("timer", "known call", "read", "expected", "note"), _instruments(outcome))
        click.echo()
        for line in _ending(outcome):
            click.echo(line)
    context.exit(ExitCode.FAILED if outcome.doubts else ExitCode.OK)


def _plain(outcome: Outcome) -> dict[str, Any]:
    calibration = outcome.profile.calibration
    return {
        "profile": outcome.profile.name,
        "device": outcome.device.kind,
        "date": calibration.date if calibration else "",
        "conditions": dict(calibration.conditions) if calibration else {},
        "measured": dict(outcome.measured),
        "readings": [
            {name: value for name, value in asdict(each).items() if name != "key"}
            for each in outcome.readings
        ],
        "doubts": list(outcome.doubts),
        "path": str(outcome.path) if outcome.path else None,
        "overruled_by": outcome.overruled_by or None,
    }


def _ceilings(outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    from kernelmark.units import format_rate

    measured = outcome.measured
    for pattern in ("read", "write", "copy", "triad"):
        yield pattern, format_rate(measured.get(f"{pattern}_bytes_per_s"), "B/s"), ""
    for rate in outcome.profile.flops:
        loop, short, kept = (
            format_rate(measured.get(f"{kind}_{rate.value}_flops_per_s"), "FLOP/s")
            for kind in ("loop", "short", "sustained")
        )
        if loop:
            yield f"{rate.value} multiply-adds", loop, ""
        if short:
            yield f"{rate.value} product", short, kept


def _instruments(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    from kernelmark.units import format_time

    for each in outcome.readings:
        least = "at least " if each.what.startswith("a copy") else ""
        expected = "" if each.expected_ns is None else f"{least}{format_time(each.expected_ns, 4)}"
        yield each.timer, each.what, format_time(each.read_ns), expected, each.note


def _ending(outcome: Outcome) -> Iterator[str]:
    calibration = outcome.profile.calibration
    if calibration is not None:
        conditions = "; ".join(f"{name} {value}" for name, value in calibration.conditions.items() if value)
        yield f"measured {calibration.date}; {conditions}"
    for doubt in outcome.doubts:
        yield f"doubt: {doubt}"
    nothing = "nothing is kept: a quick look gives no ceilings to relate to"
    yield nothing if outcome.path is None else f"kept in {outcome.path}"
    if outcome.overruled_by:
        yield f"not used: your own profile {outcome.overruled_by} counts before it"


# --- audit


@click.command()
@console.device
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
@console.as_json
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
    from kernelmark import audit as room
    from kernelmark.device import open_device

    options = room.AuditOptions(runs=repeat, against=against, only=only, keep=out)
    found = room.audit(
        open_device(device), options, told=lambda names: click.echo(f"reading with {names}", err=True)
    )
    if as_json:
        console.echo_json(room.as_json(found))
    else:
        _show(found)
    if out is not None:
        for path in room.write_audit(found, out):
            click.echo(f"written: {path}", err=as_json)
    context.exit(ExitCode.FAILED if found.doubts else ExitCode.OK)


def _show(found: Audit) -> None:
    from kernelmark.audit import audit_page
    from kernelmark.report.pages import page_text

    click.echo(page_text(audit_page(found)))
    if found.limits:
        judged = [each.kept for each in found.limits if each.kept is not None]
        open_ = len(found.limits) - len(judged)
        click.echo(f"limits: {sum(judged)} kept of {len(judged)} judged, {open_} not judged")
