"""The quick path: two functions and their inputs, no manifest; the same engine, the same report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.harness.case import Case
from kernelmark.harness.implementation import Implementation, as_implementation
from kernelmark.harness.plan import make_plan
from kernelmark.harness.runner import Comparison, run_plan
from kernelmark.harness.session import Session, SessionOptions, use_session

__all__ = ["compare"]


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
    count_copies: bool = False,
    options: SessionOptions | None = None,
) -> Comparison:
    """Compare functions: check each against ``reference``, then time all of them together.

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
            what ``kernelmark.verify.policy`` gives for the dtype.
        count_copies: Whether device-to-device copies inside a call count as work.
        options: Timer, budget, cache state, output folder; the device is that of the inputs.

    Raises:
        UsageError: nothing to run, or a value that cannot be run.
        VerificationError: a check failed; its ``comparison`` has the rows, and nothing was timed.

    Example:
        >>> kernelmark.compare({"mine": fn, "torch": ref}, inputs=(x,), reference=ref).ratio("torch")
    """
    if not isinstance(implementations, Mapping) or not implementations:
        raise UsageError('compare() takes a mapping such as {"mine": fn, "torch": ref}, ours first')
    if not isinstance(inputs, tuple):
        raise UsageError(
            f"inputs must be a tuple, got {type(inputs).__name__}; for one input write inputs=(x,)"
        )
    (ours, value), *others = implementations.items()
    implementation = as_implementation(ours, value)
    if not isinstance(implementation, Implementation):
        raise UsageError(
            f"{ours!r} comes first, so it is ours, and it is unavailable: {implementation.reason}"
        )
    session = Session(_on_device_of(inputs, options or SessionOptions()))
    outcome = "failed"
    with use_session(session):
        declaration = _declaration(reference, verification, tolerance)
        case = Case(
            ours,
            partial(
                _Given, inputs, reference, declaration
            ),  # no lambda: it may have to go to another process
            params=_params(inputs),
            count_copies=count_copies,
        )
        try:
            comparison = run_plan(make_plan(case, (ours, implementation), dict(others)), session)
            outcome = "completed"
        finally:
            case.release()
            session.close(outcome)
            _write_reports(session.folder)
    return comparison


def _declaration(reference: Callable[..., Any] | None, verification: Any, tolerance: Any) -> Any:
    from kernelmark.verify import Exact, Policy, Unestablished, require_declaration, tolerances_of

    if verification is None:
        asked = tolerances_of(tolerance, "tolerance")
        if reference is None and not asked:
            return Unestablished("no reference was given, so nothing was checked")
        return Exact(Policy(asked=asked))
    if tolerance is not None:
        raise UsageError("compare() got verification and tolerance; the declaration takes the tolerance then")
    return require_declaration(verification, "compare(verification=...)")


def _on_device_of(inputs: tuple[Any, ...], options: SessionOptions) -> SessionOptions:
    from dataclasses import replace

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
