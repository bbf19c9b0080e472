"""The check on other inputs of the same types, before the comparison proper: what is right by luck is found.

The inputs are those of :func:`kernelmark.verify.other_values.second_draw`. The engine checks; this says on what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import VerificationError
from kernelmark.harness import Case, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.models.compilers import Contestant, Subject, reference_of
from kernelmark.models.state import State, plain_inputs
from kernelmark.records import Row
from kernelmark.verify.other_values import second_draw
from torchsched.packing import ALIGNMENT

__all__ = ["Draws", "check_on_second_draw", "draw_twice"]

MakeCase = Callable[[str, tuple[Any, ...], State], Case]


@dataclass(frozen=True, slots=True)
class Draws:
    """The second draw of the inputs, or why there is none."""

    second: tuple[Any, ...] | None
    why: str = ""

    def __str__(self) -> str:
        if self.second is not None:
            return "two draws"
        return f"one draw: {self.why}" if self.why else "one draw"


def draw_twice(subject: Subject, *, tell: Callable[[str], None] = lambda line: None) -> Draws:
    """Draw the inputs again, where that is wanted and the model has a finite answer to them; tell where it has not."""
    request = subject.request
    if not request.second_draw:
        return Draws(None)
    reference = reference_of(subject.model, subject.state)
    drawn, why = second_draw(reference, subject.inputs, seed=request.seed)
    if drawn is None:
        tell(f"checked on one draw of the inputs: {why}")
        return Draws(None, why)
    return Draws(plain_inputs(drawn, ALIGNMENT))


def check_on_second_draw(
    contestant: Contestant, subject: Subject, draws: Draws, make: MakeCase, keep: Callable[[Row], None]
) -> None:
    """Let the engine check a contestant on the second draw; where it is wrong, on the first before that is told.

    Args:
        contestant: What is checked.
        subject: The model.
        draws: Its inputs.
        make: Makes the case of this name for other inputs and their state.
        keep: Gets the rows of an answer that is wrong.

    Raises:
        VerificationError: it is wrong on a draw; the message says on which.
    """
    if draws.second is None:
        return

    def check(case_id: str, inputs: tuple[Any, ...], state: State) -> None:
        """Check, and time and record nothing.

        The calls on other values come before the check on the first draw, which is of the same code: a quarter of
        the calls of slow code, such as plain loops, is spared.
        """
        case = make(case_id, inputs, state)
        options = SessionOptions(device=subject.device, verify_only=True, ceilings=False, other_values=False)
        session = Session(options)
        try:
            with use_session(session):
                run_plan(make_plan(case, (contestant.name, contestant.bind(inputs, state)), {}), session)
        finally:
            case.release()

    case_id, state = subject.request.case_id, subject.state
    try:
        check(f"{case_id} (second draw)", draws.second, state.for_inputs(draws.second))
    except VerificationError as error:
        try:
            check(case_id, subject.inputs, state)
        except VerificationError as first:
            _keep_rows(first, keep)
            raise
        _keep_rows(error, keep)
        message = f"right on the first draw of the inputs, and on a second one: {error}"
        raise type(error)(message, comparison=error.comparison) from error.__cause__


def _keep_rows(error: VerificationError, keep: Callable[[Row], None]) -> None:
    for row in error.comparison or ():
        keep(row)
