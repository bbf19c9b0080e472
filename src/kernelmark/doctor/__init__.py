"""The doctor: what this machine can measure, what it cannot and why, and what mends it.

Each subject is one function that looks at a :class:`Machine`, which is values, and gives findings, which are
values too. What a probe did not foresee propagates: a broken installation is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelmark.doctor.host import caches, ceilings, processor
from kernelmark.doctor.machine import Finding, Machine, Severity, read_machine, worst
from kernelmark.doctor.nvidia import accelerator, driver, torch
from kernelmark.doctor.tools import instruments, ways_in

__all__ = ["SUBJECTS", "Finding", "Machine", "Severity", "examine", "read_machine", "worst"]

SUBJECTS: dict[str, Callable[[Machine], Iterator[Finding]]] = {
    "torch": torch,
    "NVIDIA": driver,
    "instruments": instruments,
    "accelerator": accelerator,
    "host": processor,
    "caches": caches,
    "roofline": ceilings,
    "ways in": ways_in,
}
"""Subject → what looks at it; a new subject is one function and one line here."""


def examine(machine: Machine) -> dict[str, tuple[Finding, ...]]:
    """Look at every subject; one that has nothing to say about this machine is left out."""
    found = {subject: tuple(look(machine)) for subject, look in SUBJECTS.items()}
    return {subject: findings for subject, findings in found.items() if findings}
