"""What the two ways to run a suite share: which kernels, with which limits, and how the command ends."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import UsageError
from kernelmark.isolation import Limits
from kernelmark.kernelbench.driver import DEFAULT_MEMORY_BYTES
from kernelmark.kernelbench.statuses import (
    Outcome,
    Status,
    read_expected,
    summary,
    worse_than,
    write_expected,
)
from kernelmark.kernelbench.suite import select
from kernelmark.kernelbench.tree import ADVICE, LEVELS, Chosen, choose
from kernelmark.text import listing

__all__ = ["chosen_kernels", "end_with", "expected_statuses", "limits_of"]

_CI = (
    *("level1/1_", "level1/19_", "level1/23_", "level1/40_", "level1/47_", "level1/89_"),
    *("level2/9_", "level3/1_"),
)
"""One kernel of each of the pipelines that matter most, and one of each level."""
_GIB = 1 << 30


def chosen_kernels(given: Mapping[str, Any]) -> Chosen:
    """Give the entries that the options name, and the folder that holds their files.

    Raises:
        UsageError: there is no such suite or kernel.
    """
    suites = [*given["suites"], *([f"level{given['level']}"] if given["level"] is not None else [])]
    if given["check_root"] and not suites:
        suites = list(LEVELS)
    found = choose(suites, root=given["kernelbench_root"], kernels=given["kernels"])
    prefixes = list(given["kernels"])
    if given["ci"]:
        short = [each for each in _CI if any(entry.kernel.startswith(each) for entry in found.entries)]
        if not short:
            raise UsageError(
                f"--ci: the suite has none of {listing(_CI)}; leave it out, or name some by --kernel"
            )
        prefixes += short
    hint = (
        f"these are the models that come with kernelmark; as for KernelBench's, {ADVICE}"
        if found.fallen_back
        else ""
    )
    return Chosen(select(found.entries, prefixes, hint=hint), found.root, found.fallen_back)


def limits_of(given: Mapping[str, Any], device: str, *, usual_s: float) -> Limits:
    """Give what a kernel's process may take.

    Raises:
        UsageError: memory is limited on a GPU.
    """
    gib = given["memory"]
    if device != "cpu" and gib is not None:
        raise UsageError(
            f"--memory {gib:g} with --device {device}: the limit is one of address space, of which a GPU's driver"
            " maps as much as there is memory of all kinds; leave --memory out"
        )
    usual = DEFAULT_MEMORY_BYTES if device == "cpu" else None
    return Limits(given["timeout"] or usual_s, usual if gib is None else int(gib * _GIB))


def expected_statuses(given: Mapping[str, Any]) -> dict[str, Status] | None:
    """Read the list of ``--expect``, where there is one."""
    return read_expected(given["expect"]) if given["expect"] else None


def end_with(
    outcomes: Sequence[Outcome], given: Mapping[str, Any], expected: Mapping[str, Status] | None
) -> NoReturn:
    """Count the outcomes, keep a list where that was asked for, and end with what they mean."""
    for line in summary(outcomes):
        click.echo(line)
    if given["keep"]:
        write_expected(given["keep"], outcomes)
        click.echo(f"kept: {given['keep']}")
    worse = worse_than(expected or {}, outcomes)
    for line in worse if expected is not None else ():
        click.echo(f"worse: {line}", err=True)
    sys.exit(ExitCode.FAILED if worse else ExitCode.OK)
