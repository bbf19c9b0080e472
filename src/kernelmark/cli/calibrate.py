"""``kernelmark calibrate``: parses, calls :mod:`kernelmark.calibration`, renders, and chooses the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kernelmark.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelmark.calibration import Outcome

__all__ = ["calibrate"]


@click.command()
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto is the best.")
@click.option("--quick", is_flag=True, help="Take a fraction of the time, and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def calibrate(context: click.Context, device: str, quick: bool, as_json: bool) -> None:
    """Measure a device's ceilings and its instruments, and keep the profile that the roofline uses.

    Exits with 1 if a reading is in doubt, with 3 if the device is not there or a CPU is too busy.
    """
    from kernelmark.calibration import calibrate as measure
    from kernelmark.device import open_device

    outcome = measure(open_device(device), quick=quick)
    if as_json:
        click.echo(json.dumps(_plain(outcome), indent=2, ensure_ascii=False))
    else:
        _show(outcome)
    context.exit(ExitCode.FAILED if outcome.doubts else ExitCode.OK)


def _plain(outcome: Outcome) -> dict[str, Any]:
    calibration = outcome.profile.calibration
    readings = [asdict(reading) for reading in outcome.readings]
    for reading in readings:
        del reading["key"]
    return {
        "profile": outcome.profile.name,
        "device": outcome.device.kind,
        "date": calibration.date if calibration else "",
        "conditions": dict(calibration.conditions) if calibration else {},
        "measured": dict(outcome.measured),
        "readings": readings,
        "doubts": list(outcome.doubts),
        "path": str(outcome.path) if outcome.path else None,
        "overruled_by": outcome.overruled_by or None,
    }


def _show(outcome: Outcome) -> None:
    from kernelmark.cli.tables import echo_table, new_table

    click.echo(outcome.profile.name)
    ceilings = new_table("ceiling", "short", "sustained")
    for row in _ceilings(outcome):
        ceilings.add_row(*row)
    echo_table(ceilings)
    click.echo()
    instruments = new_table("timer", "known call", "read", "expected", "note")
    for row in _instruments(outcome):
        instruments.add_row(*row)
    echo_table(instruments)
    click.echo()
    for line in _ending(outcome):
        click.echo(line)


def _ceilings(outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    from kernelmark.units import format_rate

    measured = outcome.measured
    for pattern in ("read", "write", "copy", "triad"):
        yield pattern, format_rate(measured.get(f"{pattern}_bytes_per_s"), "B/s"), ""
    for rate in outcome.profile.flops:
        short = measured.get(f"short_{rate.value}_flops_per_s")
        kept = measured.get(f"sustained_{rate.value}_flops_per_s")
        if (loop := measured.get(f"loop_{rate.value}_flops_per_s")) is not None:
            yield f"{rate.value} multiply-adds", format_rate(loop, "FLOP/s"), ""
        if short is not None:
            yield f"{rate.value} product", format_rate(short, "FLOP/s"), format_rate(kept, "FLOP/s")


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
    if outcome.path is None:
        yield "nothing is kept: a quick look gives no ceilings to relate to"
    else:
        yield f"kept in {outcome.path}"
    if outcome.overruled_by:
        yield f"not used: your own profile {outcome.overruled_by} counts before it"
