"""What all timers share: references that are found replaced, the loop over rounds, the scope around a call."""

from __future__ import annotations

import types

import pytest

from kernelmark.errors import TimingError
from kernelmark.timing.timer import Bracket, Call, Scopes, capture, run_rounds, verify


@pytest.fixture
def module() -> types.ModuleType:
    made = types.ModuleType("clocks")
    made.now = lambda: 1
    made.wait = lambda: None
    return made


def test_what_is_as_it_was_passes(module: types.ModuleType) -> None:
    verify(capture(module, "now", "wait"))


def test_every_replaced_name_is_in_the_message(module: types.ModuleType) -> None:
    taken = capture(module, "now", "wait")
    module.now = lambda: 2
    del module.wait
    with pytest.raises(TimingError, match=r"clocks\.now is now <function.*clocks\.wait is now 'gone'"):
        verify(taken)


def test_a_method_is_named_with_its_class() -> None:
    (taken,) = capture(types.SimpleNamespace, "__init__")
    assert str(taken) == "types.SimpleNamespace.__init__"


# --- rounds -----------------------------------------------------------------------------------------


def test_a_round_is_prepare_begin_call_end_and_done_only_when_both_ends_are_kept() -> None:
    log, numbers = [], iter(range(100))

    def note(word: str):
        def noted(*_: object) -> int:
            log.append(word)
            return next(numbers)

        return noted

    ends, result = run_rounds(
        Call(note("call"), (1,)), note("prepare"), 2, Bracket(note("begin"), note("end"), done=note("done"))
    )
    assert log == ["prepare", "begin", "call", "end", "done"] * 2
    assert ends == [(1, 3), (6, 8)]
    assert result == 7


def test_a_rehearsal_goes_through_the_bracket_with_a_call_that_does_nothing() -> None:
    log = []
    bracket = Bracket(lambda: log.append("begin"), lambda: log.append("end"), rehearse=True)
    ends, _ = run_rounds(Call(lambda: log.append("call")), lambda: log.append("prepare"), 1, bracket)
    assert log == ["prepare", "begin", "end", "begin", "call", "end"]
    assert len(ends) == 1


def test_a_call_that_raises_leaves_no_scope_open() -> None:
    class Scope:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            log.append(f"enter {self.name}")

        def __exit__(self, *_: object) -> None:
            log.append(f"leave {self.name}")

    log: list[str] = []
    scopes, outcomes = Scopes(Scope, "call {}".format), iter([0, 1])
    bracket = Bracket(scopes.enter, scopes.leave, broken=scopes.leave)
    with pytest.raises(ZeroDivisionError):
        run_rounds(Call(lambda: 1 // (1 - next(outcomes))), lambda: None, 2, bracket)
    assert log == ["enter call 0", "leave call 0", "enter call 1", "leave call 1"]
