"""Builds references: each builder runs once, before anything is timed, and may fail without failing the rest."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmark.errors import UsageError
from kernelmark.launches.options import Builder, Launch
from kernelmark.launches.ranks import Ranks

__all__ = ["Built", "build_references", "report_baseline_error", "share_errors"]


@dataclass(frozen=True, slots=True)
class Built:
    """The launches there are, and why there are no others; both in the order asked for."""

    launches: dict[str, Launch] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def build_references(builders: Mapping[str, Builder]) -> Built:
    """Run each builder once."""
    built = Built()
    for name, builder in builders.items():
        try:
            built.launches[name] = _launch_of(builder)
        except Exception as error:  # noqa: BLE001 - a baseline that cannot be built is a result: its error
            built.errors[name] = f"{type(error).__name__}: {error}"
    return built


def share_errors(built: Built, ranks: Ranks) -> Built:
    """Drop on every rank what one of them could not build, so that none waits for a launch that never comes."""
    order = [*built.launches, *built.errors]
    failed = dict.fromkeys(sorted(order), "")
    for name in failed:
        if any(ranks.values(name in built.errors)):
            told = ranks.texts(built.errors.get(name, ""))
            failed[name] = "; ".join(f"rank {who}: {text}" for who, text in enumerate(told) if text)
    return Built(
        {name: launch for name, launch in built.launches.items() if not failed[name]},
        {name: failed[name] for name in order if failed[name]},
    )


def report_baseline_error(name: str, message: str) -> None:
    """Tell stderr that a baseline is missing, as the runs that collect these lines expect."""
    # the one line that this way in owes to stderr, as its specification has it; the rest is in the result
    sys.stderr.write(f"BASELINE_ERROR: {name}: {message}\n")


def _launch_of(builder: Builder) -> Launch:
    launch = builder()
    if not callable(launch):
        raise UsageError(
            f"the builder returned {launch!r}; it must return the launch, a callable without arguments"
        )
    return launch
