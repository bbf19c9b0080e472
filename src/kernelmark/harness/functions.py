"""The quick path: two functions and their inputs, no manifest; the same engine, the same report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kernelmark.errors import UsageError
from kernelmark.harness.ambient import session_in_use, use_session
from kernelmark.harness.case import Case
from kernelmark.harness.implementation import Implementation, as_implementation
from kernelmark.harness.plan import Plan, make_plan
from kernelmark.harness.runner import Comparison, run_plan
from kernelmark.harness.session import Session, SessionOptions
from kernelmark.roofline import Work
from kernelmark.verify import Exact, Policy, Unestablished, require_declaration, tolerances_of

__all__ = ["compare"]


@dataclass(frozen=True, slots=True)
class _Counted:
    """Stands for the op, which says how much work a call is."""

    work: Work

    def eval_roofline(self) -> Work:
        return self.work


class _Given:
    """A workload made of what the caller passed."""

    def __init__(
        self, inputs: tuple[Any, ...], reference: Callable[..., Any] | None, declaration: Any
    ) -> None:
        self.inputs, self.reference, self.declaration = inputs, reference, declaration

    def gen_inputs(self) -> tuple[Any, ...]:
        return self.inputs

    def verification(self) -> Any:
        return self.declaration


def compare(
    implementations: Mapping[str, object],
    *,
    inputs: tuple[Any, ...] = (),
    reference: Callable[..., Any] | None = None,
    verification: Any = None,
    tolerance: Any = None,
    label: str = "",
    params: Mapping[str, Any] | None = None,
    work: Work | None = None,
    count_copies: bool = False,
    on_failure: Literal["raise", "leave out"] = "raise",
    options: SessionOptions | None = None,
) -> Comparison:
    """Compare functions: check each against ``reference``, then time all of them together.

    Inside another session, pytest's with the plugin or that of ``use_session``, and without ``options``, its
    options hold and its run keeps the rows.

    Args:
        implementations: Name to callable or :class:`Implementation`. The first is ours, the others its
            baselines.
        inputs: What each callable gets; on the device that is to be measured.
        reference: Gives the expected result from ``inputs``. Without one nothing is checked, the rows say so
            and there is no ratio.
        verification: How outputs are compared, as a declaration of ``kernelmark.verify``; all outputs by
            ``tolerance`` where there is a reference.
        tolerance: How far outputs may be off: one number for the root mean square error over the answer's,
            ``(atol, rtol)`` for each element by itself, or a rule such as ``Reduction(length)``. Nothing:
            what ``kernelmark.verify.Policy`` gives for the dtype.
        label: What the comparison is called in tables and records; the first name without one.
        params: What else the rows are to say of the case, such as ``{"n": 256}``.
        work: Operations and bytes of a call, for throughput and the share of the device's ceilings.
        count_copies: Whether device-to-device copies inside a call count as work.
        on_failure: What a failed check does: ``raise`` stops the comparison before anything is timed; with
            ``leave out`` the failed rows say so and the others are timed.
        options: Timer, budget, cache state, output folder; the device is that of the inputs.

    Raises:
        UsageError: nothing to run, or a value that cannot be run.
        VerificationError: a check failed; its ``comparison`` has the rows, and nothing was timed.

    Example:
        >>> kernelmark.compare({"mine": fn, "torch": ref}, inputs=(x,), reference=ref).ratio("torch")
    """
    __tracebackhide__ = True
    if not isinstance(implementations, Mapping) or not implementations:
        raise UsageError('compare() takes a mapping such as {"mine": fn, "torch": ref}, ours first')
    if not isinstance(inputs, tuple):
        raise UsageError(
            f"inputs must be a tuple, got {type(inputs).__name__}; for one input write inputs=(x,)"
        )
    if on_failure not in ("raise", "leave out"):
        raise UsageError(f"on_failure={on_failure!r}: a failed check can 'raise', or 'leave out' its row")
    if work is not None and not isinstance(work, Work):
        raise UsageError(f"work={work!r}: give a kernelmark.Work(flops, bytes, dtype)")
    plan = plan_of(
        implementations,
        inputs=inputs,
        declaration=declared(reference, verification, tolerance),
        reference=reference,
        label=label,
        params=params,
        count_copies=count_copies,
        leave_out=on_failure == "leave out",
    )
    with _session_for(inputs, options) as session:
        try:
            return run_plan(plan, session, op=None if work is None else _Counted(work))
        finally:
            plan.case.release()


def plan_of(
    implementations: Mapping[str, object],
    *,
    declaration: Any,
    reference: Callable[..., Any] | None = None,
    inputs: tuple[Any, ...] = (),
    label: str = "",
    params: Mapping[str, Any] | None = None,
    count_copies: bool = False,
    leave_out: bool = False,
) -> Plan:
    """Make a plan of what a caller has in hand, the first implementation being ours; as :func:`compare` has it.

    Raises:
        UsageError: a name or value that no run could use, or ours is unavailable.
    """
    (ours, value), *others = implementations.items()
    implementation = as_implementation(ours, value)
    if not isinstance(implementation, Implementation):
        raise UsageError(
            f"{ours!r} comes first, so it is ours, and it is unavailable: {implementation.reason}"
        )
    # no lambda: it may have to go to another process
    build = partial(_Given, inputs, reference, declaration)
    shown = {**_params(inputs), **(params or {})}
    case = Case(label or ours, build, params=shown, count_copies=count_copies)
    return make_plan(case, (ours, implementation), dict(others), leave_out=leave_out)


@contextmanager
def _session_for(inputs: tuple[Any, ...], options: SessionOptions | None) -> Iterator[Session]:
    """Give the session that this is a part of, or one of its own, which is closed in the end."""
    joined = session_in_use() if options is None else None
    if joined is not None and not joined.closed:
        _require_device(inputs, joined)
        yield joined
        return
    with own_session(Session(_on_device_of(inputs, options or SessionOptions()))) as session:
        yield session


@contextmanager
def own_session(session: Session) -> Iterator[Session]:
    """Use a session for one comparison: it is closed in the end, with reports where it has a folder."""
    outcome = "failed"
    try:
        with use_session(session):
            yield session
        outcome = "completed"
    finally:
        session.close(outcome)
        _write_reports(session.folder)


def _require_device(inputs: tuple[Any, ...], session: Session) -> None:
    wanted = session.device.torch_name
    for index, each in enumerate(inputs):
        found = str(getattr(each, "device", wanted))
        if found not in (wanted, f"{wanted}:0"):
            raise UsageError(
                f"input[{index}] is on {found}, and the session in use runs on {wanted}; make the inputs there, or"
                " give options=SessionOptions(...) for a run of its own"
            )


def declared(reference: Callable[..., Any] | None, verification: Any = None, tolerance: Any = None) -> Any:
    """Give the declaration for what was passed; without a reference nothing is established.

    Raises:
        UsageError: it is none, or a tolerance that is none.
    """
    if verification is None:
        asked = tolerances_of(tolerance, "tolerance")
        if reference is None and not asked:
            return Unestablished("no reference was given, so nothing was checked")
        return Exact(Policy(asked=asked))
    if tolerance is not None:
        raise UsageError("compare() got verification and tolerance; the declaration takes the tolerance then")
    return require_declaration(verification, "compare(verification=...)")


def _on_device_of(inputs: tuple[Any, ...], options: SessionOptions) -> SessionOptions:
    devices = {str(x.device) for x in inputs if hasattr(x, "device")}
    if len(devices) > 1:
        raise UsageError(f"the inputs are on several devices: {', '.join(sorted(devices))}; put them on one")
    if options.device != "auto" or not devices:
        return options
    return replace(options, device=devices.pop())


def _params(inputs: tuple[Any, ...]) -> dict[str, str]:
    return {
        f"input[{i}]": f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        if hasattr(x, "shape")
        else repr(x)[:60]
        for i, x in enumerate(inputs)
    }


def _write_reports(folder: Path | None) -> None:
    if folder is not None:
        from kernelmark.report import write_reports

        write_reports(folder)
