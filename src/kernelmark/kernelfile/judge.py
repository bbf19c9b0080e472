"""The process that checks a solution's answers again: it runs references, and never loads a solution.

A solution runs in the worker's process and can say there what it likes. Here its answers, to values drawn
after it was timed, are compared with the reference's.
"""

from __future__ import annotations

import inspect
from typing import Any

from kernelmark.errors import VerificationError
from kernelmark.kernelfile.handover import READY, Job, Outcome, SecondCheck
from kernelmark.kernelfile.jobs import Orders, ended, serve

__all__ = ["recheck"]


def recheck(job: Job) -> SecondCheck:
    """Compare the answers that a worker has left with the reference's for the same values.

    Raises:
        Exception: whatever the reference raises.
    """
    from kernelmark.device import open_device
    from kernelmark.kernelfile.answers import read_answers
    from kernelmark.kernelfile.binding import shown_as
    from kernelmark.kernelfile.preparing import device_of, prepare
    from kernelmark.verify import check_outputs, run_controls, vacuous

    device = open_device(device_of(job.request)).torch_name
    (job.folder / READY).touch()
    prepared = prepare(job.request, job.library, device)
    try:
        left = read_answers(job.answers or job.folder, device)
        undone = left.undone or _needed(prepared.reference.function, left.dropped)
        if undone:
            return SecondCheck(undone=undone)
        kwargs = _arguments(job, prepared, left)
    except VerificationError as error:
        return SecondCheck(wrong=str(error))
    expected = prepared.reference.answer({**prepared.extra, **kwargs}, tuple(left.outputs))
    got = {
        name: shown_as(value, (tuple(expected[name].shape), expected[name].dtype))
        if name in prepared.inferred
        else value
        for name, value in left.outputs.items()
    }
    verdict = check_outputs(got, expected, prepared.declaration)
    inputs = [value for name, value in kwargs.items() if name not in expected]
    controls = run_controls(expected, inputs, prepared.declaration)
    return SecondCheck(
        wrong="" if verdict.passed else verdict.message,
        vacuous=vacuous(controls),
        outputs=tuple(each.model_dump(mode="json") for each in verdict.outputs),
    )


def _arguments(job: Job, prepared: Any, left: Any) -> dict[str, Any]:
    """Draw the arguments again where they are ours to draw; those of a ``setup`` are the worker's word."""
    if job.library is None:
        kwargs, names = left.arguments, tuple(left.outputs)
        missing = [name for name in names if name not in kwargs]
        if missing or not names:
            raise VerificationError(
                f"the worker left outputs without arguments: {', '.join(missing) or 'none'}"
            )
        return kwargs
    assert job.seed is not None  # a judge is told
    drawn = prepared.solution.data(job.seed)
    if tuple(left.outputs) != drawn.outputs:
        raise VerificationError(
            f"the worker left the outputs {', '.join(left.outputs) or 'none'}, and solve() has"
            f" {', '.join(drawn.outputs)}"
        )
    return drawn.kwargs


def _needed(function: Any, dropped: dict[str, str]) -> str:
    """Say which argument the reference needs and cannot be given; blank where there is none."""
    explicit = inspect.signature(function).parameters
    return next((f"setup() gives {name}, and {why}" for name, why in dropped.items() if name in explicit), "")


def _carry_out(job: Job, orders: Orders) -> Outcome:
    try:
        recheck(job).write(job.folder)
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything becomes the outcome
        return ended(error)
    return Outcome()


if __name__ == "__main__":
    serve(_carry_out)
