"""What makes a whole run suspicious: one check each, over what the run stored.

A remark never changes a row; it says where a reader should look before believing the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kernelmark.device import probe_verdict
from kernelmark.records import Check, Row, StoredRun, Telemetry
from kernelmark.report.notes import DRIFT_LIMIT, mixed_caches, note_text, uneven_blocks
from kernelmark.report.plain import grouped, one_line, shortened, visible

__all__ = ["Remark", "check_counts", "remarks"]

CLOCK_LIMIT = 0.01
"""Spread of the device clock that is normal: one step of an H200's clock, 15 MHz of 1980, is 0.8 %."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to look at: what it is about, and what was found."""

    subject: str
    text: str


def remarks(run: StoredRun) -> tuple[Remark, ...]:
    """Give everything that makes ``run`` suspicious, in a fixed order."""
    return tuple(Remark(subject, one_line(text)) for subject, check in _CHECKS.items() for text in check(run))


def check_counts(rows: Iterable[Row]) -> dict[Check, int]:
    """Count the rows by check, in the order of trust, without the checks that did not occur."""
    counts = Counter(row.check for row in rows)
    return {check: counts[check] for check in Check if counts[check]}


# --- the checks: each yields sentences ---------------------------------------------------------------


def _ended(run: StoredRun) -> Iterator[str]:
    if run.truncated:
        yield "the file ends inside a line; the rows before it are whole, later ones are lost"
    if run.end is None:
        yield "the run was cut short: it has no end mark, so rows may be missing"
        return
    if run.end.outcome != "completed":
        yield f"the run ended as {run.end.outcome}{': ' if run.end.detail else ''}{run.end.detail}"
    if run.end.rows != len(run.rows):
        yield f"the end mark counts {run.end.rows} rows, the file holds {len(run.rows)}"


def _source(run: StoredRun) -> Iterator[str]:
    if run.header.environment.git_dirty:
        yield "the working tree had changes that no revision holds, so the run cannot be repeated from it"


def _instruments(run: StoredRun) -> Iterator[str]:
    used = Counter(row.timing.timer for row in run.rows if row.timing)
    if len(used) > 1:
        told = ", ".join(f"{visible(timer)} ({count} rows)" for timer, count in used.items())
        yield f"rows were read by different instruments: {told}; compare times only within one"


def _caches(run: StoredRun) -> Iterator[str]:
    probe, asked = run.header.probe, run.header.protocol.cache
    found = {row.timing.cache for row in run.rows if row.timing}
    if probe is not None and (doubt := probe_verdict(probe, asked)):
        yield doubt
    if probe is None and found:
        yield f"the run holds no probe, so nothing shows that {asked.value} is {asked.value}"
    if mixed := mixed_caches(run.rows):
        yield mixed
    elif found - {asked}:
        yield f"the run was to be {asked.value}, and its rows are {found.pop().value}"


def _controls(run: StoredRun) -> Iterator[str]:
    missed = (
        (row.case, each.control)
        for row in run.rows
        for each in row.controls
        if each.applied and not each.caught
    )
    for case, names in grouped(missed).items():
        yield f"the check of {case} lets a wrong answer pass: {', '.join(names)}"


def _drift(run: StoredRun) -> Iterator[str]:
    drifted = [
        f"{_name(row)} ({100 * row.timing.drift:+.1f} %)"
        for row in run.rows
        if row.timing and row.timing.drift is not None and abs(row.timing.drift) > DRIFT_LIMIT
    ]
    if drifted:
        limit = f"{100 * DRIFT_LIMIT:.0f} %"
        yield f"the halves of the passes differ by more than {limit} in {shortened(drifted)}"


def _clock(run: StoredRun) -> Iterator[str]:
    clocks = [clock for _, state in _states(run) if (clock := state.clock_mhz)]
    if clocks and max(clocks) - min(clocks) > CLOCK_LIMIT * max(clocks):
        yield (
            f"the device ran at {min(clocks):.0f} to {max(clocks):.0f} MHz;"
            " trust ratios, which were taken side by side, before times"
        )


def _throttling(run: StoredRun) -> Iterator[str]:
    found = ((reason, _name(row)) for row, state in _states(run) for reason in state.throttle_reasons)
    for reason, names in grouped(found).items():
        yield f"the device slowed itself down ({reason}) during {shortened(names)}"


def _company(run: StoredRun) -> Iterator[str]:
    others = dict.fromkeys(other for _, state in _states(run) for other in state.other_processes)
    if others:
        yield f"other processes were on the device: {shortened(others)}"
    # Only where the device is the CPU does the load compete with the timed call for it.
    cores = run.header.device.cores if run.header.device.kind == "cpu" else None
    load = max((state.load_average or 0.0 for _, state in _states(run)), default=0.0)
    if cores and load > cores:
        threads = run.header.device.threads or 0
        helps = "measure later"
        if threads >= cores > 1:
            helps = (
                f"{threads} threads leave none to others, so measure with fewer (OMP_NUM_THREADS=1), or later"
            )
        yield f"the load average reached {load:.1f} on {cores} cores: others were using the machine; {helps}"
    restless = [
        _name(row)
        for row in run.rows
        if row.timing and any(each.before and each.before.busy_threads for each in row.timing.passes)
    ]
    if restless:
        yield (
            "other threads of this process went on computing while a pass began, and took processors from it:"
            f" {shortened(dict.fromkeys(restless))}"
        )


def _retries(run: StoredRun) -> Iterator[str]:
    again = [f"{_name(row)} ({row.timing.retries})" for row in run.rows if row.timing and row.timing.retries]
    if again:
        yield f"passes had to be read again: {shortened(again)}"


def _roofline(run: StoredRun) -> Iterator[str]:
    for row in run.rows:
        if row.roofline is not None and row.roofline.anomaly:
            yield f"{_name(row)}: {note_text(row.roofline.anomaly)}"


def _header_notes(run: StoredRun) -> Iterator[str]:
    told = set(_caches(run))
    yield from (text for note in run.header.notes if (text := note_text(note)) not in told)


_CHECKS: dict[str, Callable[[StoredRun], Iterator[str]]] = {
    "incomplete": _ended,
    "wrong answers pass": _controls,
    "impossible speed": _roofline,
    "instrument": _instruments,
    "caches": _caches,
    "uneven blocks": lambda run: uneven_blocks(run.rows),
    "drift": _drift,
    "clock": _clock,
    "throttling": _throttling,
    "other work": _company,
    "repeated readings": _retries,
    "uncommitted changes": _source,
    "note": _header_notes,
}


def _states(run: StoredRun) -> Iterator[tuple[Row, Telemetry]]:
    for row in run.rows:
        for each in row.timing.passes if row.timing else ():
            yield from ((row, state) for state in (each.before, each.after) if state is not None)


def _name(row: Row) -> str:
    return f"{row.case} / {row.implementation}"
