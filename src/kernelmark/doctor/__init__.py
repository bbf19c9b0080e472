"""The doctor: what this machine can measure, what it cannot and why, and what mends it.

Each subject is one module that looks at a :class:`Machine`, which is values, and gives findings, which are
values too. What a probe did not foresee propagates: a broken installation is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelmark.doctor import accelerator, caches, ceilings, driver, processor, profilers, pytorch
from kernelmark.doctor.finding import Finding, Severity, worst
from kernelmark.doctor.machine import Machine, read_machine

__all__ = ["SUBJECTS", "Finding", "Machine", "Severity", "examine", "read_machine", "worst"]

SUBJECTS: dict[str, Callable[[Machine], Iterator[Finding]]] = {
    "torch": pytorch.findings,
    "NVIDIA": driver.findings,
    "instruments": profilers.findings,
    "accelerator": accelerator.findings,
    "host": processor.findings,
    "caches": caches.findings,
    "roofline": ceilings.findings,
}
"""Subject → what looks at it; a new subject is one module and one line here."""


def examine(machine: Machine) -> dict[str, tuple[Finding, ...]]:
    """Look at every subject; one that has nothing to say about this machine is left out."""
    found = {subject: tuple(look(machine)) for subject, look in SUBJECTS.items()}
    return {subject: findings for subject, findings in found.items() if findings}
