"""Lists schedules and explains one, for ``kernelmark model``. Prints what :mod:`torchsched.descriptors` says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelmark.cli.console import echo_table
from torchsched.bindings import available
from torchsched.descriptors import find_schedule, list_schedules
from torchsched.descriptors.explain import explain_parameter, explain_steps, short_path
from torchsched.descriptors.lookup import find_path
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
    rows: list[tuple[str, ...]] = []
    for listed in sorted(list_schedules(roots), key=lambda each: each.pipeline):
        elements = FLOATS if listed.element is None else (listed.element,)
        taken = any(find_path(listed.pipeline, each, chosen, roots) == listed.path for each in elements)
        said = f"cannot be used: {listed.problem}" if listed.problem else listed.description
        element = str(listed.element) if listed.element else "any"
        root = "shipped" if listed.shipped else short_path(listed.root)
        rows.append(("*" if taken else "", listed.pipeline, element, listed.serves, root, said))
    echo_table(("", "pipeline", "dtype", "for", "from", "description"), rows)


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
        told = (explain_parameter(parameter) for parameter in schedule.parameters)
        click.echo()
        echo_table(
            ("parameter", "value", "declared", "choices"),
            ((name, value, where, choices) for name, value, choices, where in told),
        )
    click.echo()
    echo_table(
        ("", "kind", "where", "step"),
        (
            (
                "" if step.number is None else str(step.number),
                step.kind,
                step.where,
                f"{step.text}{f'  ({step.note})' if step.note else ''}",
            )
            for step in explain_steps(schedule)
        ),
    )
