"""A resolved schedule: its steps in order, its parameters, and the target it was resolved for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchsched.descriptors.parameters import Parameter, Value
from torchsched.descriptors.steps import Step
from torchsched.targets import Target

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What :func:`load_schedule` makes of one descriptor, or of several that follow one another."""

    name: str
    paths: tuple[Path, ...]
    """The files that were asked for, without those they include."""
    target: Target
    """What it was resolved for; a parameter ``threads`` has its say in how many it has."""
    description: str
    parameters: tuple[Parameter, ...]
    """What may be set from outside, in the order of declaration."""
    written: tuple[Step, ...]
    """Every step, those for other targets among them."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    """How many threads the target had before the schedule had its say; ``None`` where that is the same."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps for this target; those that ask for what the module holds are among them."""
        return tuple(step for step in self.written if all(each.allows(self.target) for each in step.when))

    @property
    def values(self) -> dict[str, Value]:
        """The parameters' values in force."""
        return {parameter.name: parameter.value for parameter in self.parameters}

    def with_parameters(self, **values: object) -> Schedule:
        """Give the schedule with other values; it is read and resolved again.

        Raises:
            ScheduleError: a name that is not declared, or a value that it does not take.
        """
        from torchsched.descriptors.loader import load_schedule

        kept = {each.name: each.value for each in self.parameters if each.value != each.default}
        target = replace(self.target, threads=self.threads or self.target.threads)
        return load_schedule(self.paths, target, values={**kept, **values}, name=self.name)

    def __str__(self) -> str:
        values = ", ".join(
            f"{each.name}={each.value}" for each in self.parameters if each.value != each.default
        )
        return f"{self.name} ({values})" if values else self.name
