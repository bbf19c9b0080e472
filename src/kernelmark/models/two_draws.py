"""The check of one implementation on a second draw of the inputs, before the comparison proper on the first.

The engine checks; this says on what, and tells an answer that is wrong on both draws from one that is right on the
first by luck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import VerificationError
from kernelmark.harness import Case, Implementation, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.models.state import State, plain_inputs
from kernelmark.records import Row
from kernelmark.verify.second_draw import second_draw
from torchsched.packing import ALIGNMENT

__all__ = ["Binder", "Contestant", "Draws", "draw_twice"]

Binder = Callable[[tuple[Any, ...], State], Implementation]
"""Makes an implementation for inputs and a state."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The second draw of the inputs, or why there is none."""

    second: tuple[Any, ...] | None
    why: str = ""

    def __str__(self) -> str:
        if self.second is not None:
            return "two draws"
        return f"one draw: {self.why}" if self.why else "one draw"


@dataclass(frozen=True, slots=True)
class Contestant:
    """What is checked: its name, the case that it has with other inputs, and how it is made for them."""

    name: str
    case_id: str
    device: str
    bind: Binder
    case: Callable[[str, tuple[Any, ...], State], Case]
    keep: Callable[[Row], None]
    """Gets the rows of an answer that is wrong."""

    def check_second_draw(self, draws: Draws, inputs: tuple[Any, ...], state: State) -> None:
        """Let the engine check it on the second draw; where it is wrong there, on ``inputs`` before that is told.

        Raises:
            VerificationError: it is wrong on a draw; the message says on which.
        """
        if draws.second is None:
            return
        try:
            self._check(f"{self.case_id} (second draw)", draws.second, state.for_inputs(draws.second))
        except VerificationError as error:
            try:
                self._check(self.case_id, inputs, state)
            except VerificationError as first:
                self._keep(first)
                raise
            self._keep(error)
            message = f"right on the first draw of the inputs, and on a second one: {error}"
            raise type(error)(message, comparison=error.comparison) from error.__cause__

    def _check(self, case_id: str, inputs: tuple[Any, ...], state: State) -> None:
        """Let the engine check it, and time and record nothing.

        The calls on other values come before the check on the first draw, which is of the same code: a quarter of
        the calls of slow code, such as plain loops, is spared.
        """
        case = self.case(case_id, inputs, state)
        options = SessionOptions(device=self.device, verify_only=True, ceilings=False, other_values=False)
        session = Session(options)
        try:
            with use_session(session):
                run_plan(make_plan(case, (self.name, self.bind(inputs, state)), {}), session)
        finally:
            case.release()

    def _keep(self, error: VerificationError) -> None:
        for row in error.comparison or ():
            self.keep(row)


def draw_twice(
    reference: Callable[..., Any],
    inputs: tuple[Any, ...],
    *,
    seed: int,
    wanted: bool,
    tell: Callable[[str], None],
) -> Draws:
    """Draw the inputs again, where that is wanted and ``reference`` has a finite answer; tell where it has not."""
    if not wanted:
        return Draws(None)
    drawn, why = second_draw(reference, inputs, seed=seed)
    if drawn is None:
        tell(f"checked on one draw of the inputs: {why}")
        return Draws(None, why)
    return Draws(plain_inputs(drawn, ALIGNMENT))
