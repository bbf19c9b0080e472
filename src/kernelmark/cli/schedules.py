"""Lists schedules and explains one, for ``kernelmark model``. Prints what :mod:`torchsched.descriptors` says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelmark.cli.tables import echo_table, new_table
from torchsched.bindings import available
from torchsched.descriptors import find_schedule, list_schedules
from torchsched.descriptors.explain import explain_parameter, explain_steps, short_path
from torchsched.descriptors.lookup import Listed, find_path
from torchsched.descriptors.passes import check_passes
from torchsched.elements import FLOATS, Element
from torchsched.targets import detect, override

if TYPE_CHECKING:
    from kernelmark.models import ModelRequest

__all__ = ["show_explained", "show_list"]


def show_list(roots: Sequence[Path], *, target: str | None, feature: str | None, threads: int | None) -> None:
    """Print every schedule that has a name; a star marks those that the target would take."""
    chosen = override(detect(), name=target, feature=feature, threads=threads)
    click.echo(f"target: {chosen}")
    table = new_table("", "pipeline", "dtype", "for", "from", "description")
    for listed in sorted(list_schedules(roots), key=lambda each: each.pipeline):
        elements = FLOATS if listed.element is None else (listed.element,)
        taken = any(find_path(listed.pipeline, each, chosen, roots) == listed.path for each in elements)
        said = f"cannot be used: {listed.problem}" if listed.problem else listed.description
        element = str(listed.element) if listed.element else "any"
        table.add_row("*" if taken else "", listed.pipeline, element, listed.serves, _root(listed), said)
    echo_table(table)


def show_explained(request: ModelRequest) -> None:
    """Print what would run, in order: target, parameters, steps."""
    target = override(detect(), name=request.target, feature=request.feature, threads=request.threads)
    element = request.element or Element.F32
    schedule = find_schedule(request.pipeline, element, target, roots=request.roots, values=request.values)
    if installed := available():
        check_passes(schedule.written)
    click.echo(f"schedule: {schedule.name}: {schedule.description}".removesuffix(": "))
    for path in schedule.paths:
        click.echo(f"file: {short_path(path)}")
    click.echo(f"target: {schedule.target}")
    for note in schedule.target.notes:
        click.echo(f"  {note}")
    for key, value in schedule.provenance.items():
        click.echo(f"provenance: {key}: {value}")
    if not installed:
        click.echo(f"the passes were not looked up: {installed.detail}")
    if schedule.parameters:
        table = new_table("parameter", "value", "declared", "choices")
        for parameter in schedule.parameters:
            name, value, choices, where = explain_parameter(parameter)
            table.add_row(name, value, where, choices)
        click.echo()
        echo_table(table)
    table = new_table("", "kind", "where", "step")
    for step in explain_steps(schedule):
        number = "" if step.number is None else str(step.number)
        table.add_row(number, step.kind, step.where, f"{step.text}{f'  ({step.note})' if step.note else ''}")
    click.echo()
    echo_table(table)


def _root(listed: Listed) -> str:
    return "shipped" if listed.shipped else short_path(listed.root)
