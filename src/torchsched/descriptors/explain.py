"""What would run, in order: a schedule's steps as rows of text, those that are left out among them with the reason."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from torchsched.descriptors.conditions import Condition
from torchsched.descriptors.lookup import SHIPPED
from torchsched.descriptors.parameters import Parameter, written
from torchsched.descriptors.schedule import Schedule
from torchsched.descriptors.steps import Step

__all__ = ["ExplainedStep", "explain_parameter", "explain_steps", "short_path"]


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """One step as a reader sees it."""

    number: int | None
    """Its place among those that run; ``None`` for one that is left out."""
    kind: str
    text: str
    where: str
    """``file:line``."""
    note: str
    """On what it depends, or why it is left out."""


def explain_steps(schedule: Schedule) -> tuple[ExplainedStep, ...]:
    """List every step of ``schedule`` in order."""
    rows, number = [], 0
    for step in schedule.written:
        refused = [each for each in step.when if not each.allows(schedule.target)]
        if not refused:
            number += 1
        if refused:
            note = f"left out: needs {' and '.join(repr(each.text) for each in refused)}"
        else:
            note = " and ".join(_asked(each) for each in step.when if each.of_module)
        rows.append(ExplainedStep(None if refused else number, step.kind, step.name, _where(step), note))
    return tuple(rows)


def explain_parameter(parameter: Parameter) -> tuple[str, str, str, str]:
    """Give a parameter's name, value, what it may be, and where it is declared."""
    choices = ", ".join(written(each) for each in parameter.choices) or "any"
    if parameter.value != parameter.default:
        choices += f"; by default {written(parameter.default)}"
    place = f"{short_path(Path(parameter.place.path))}:{parameter.place.line}"
    return parameter.name, written(parameter.value), choices, place


def short_path(path: Path) -> str:
    """Write a path as short as it stays clear: within the shipped schedules, or from the working folder."""
    path = path.resolve()
    if path.is_relative_to(SHIPPED):
        return f"schedules/{path.relative_to(SHIPPED)}"
    near = os.path.relpath(path)
    return near if not near.startswith("..") else str(path)


def _asked(condition: Condition) -> str:
    return f"where the module has {'no ' if condition.negated else ''}operations of {condition.subject}"


def _where(step: Step) -> str:
    return f"{short_path(Path(step.origin.place.path))}:{step.origin.place.line}"
