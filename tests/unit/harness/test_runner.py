"""The engine's order, and what a comparison leaves: everything checked first, every row accounted for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    InputsModifiedError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import Case, Implementation, Runner, Session, Unavailable, use_session
from kernelmark.records import Check
from kernelmark.report.notes import note_text
from kernelmark.verify import (
    Custom,
    Exact,
    Guard,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Renewed,
    Unestablished,
)
from tests.unit.harness.builders import TwiceOp, compare, make_case


@pytest.fixture(autouse=True)
def _in_session(session: Session) -> Session:
    return session


@pytest.mark.spec("T10", "T13", "T36")
def test_rows_are_ours_first_then_the_mapping_in_its_order(session: Session) -> None:
    found = compare({"b b": lambda x: x + x, "a": lambda x: x * 2.0})
    assert [r.implementation for r in found] == ["tileops", "b b", "a"]
    assert {r.op for r in found} == {"TwiceOp"}
    assert all(r.check is Check.VERIFIED for r in found)
    assert found.ratio("a").low is not None
    assert found.ratio("tileops") is None
    assert found.row("tileops").backend == "torch"
    assert list(session.rows) == list(found.rows)


@pytest.mark.spec("T10")
def test_an_empty_mapping_measures_the_op_alone_and_a_single_one_is_the_baseline() -> None:
    assert [r.implementation for r in compare({})] == ["tileops"]
    assert [r.implementation for r in compare(lambda x: x * 2)] == ["tileops", "baseline"]
    with pytest.raises(UsageError, match="no implementation 'x'"):
        compare({}).row("x")


@pytest.mark.spec("T11")
def test_args_choose_what_run_gets() -> None:
    seen: dict[str, tuple[Any, ...]] = {}
    private = torch.ones(16, 8)

    def remember(name: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            seen[name] = args
            return case.inputs[0] * 2

        return run

    case = make_case()
    Runner(TwiceOp(), case).compare(
        {
            "shared": remember("shared"),
            "none": Implementation(run=remember("none"), args=()),
            "own": Implementation(run=remember("own"), args=(private, 3)),
        }
    )
    assert seen["shared"] == case.inputs
    assert seen["none"] == ()
    assert seen["own"][0] is private
    assert seen["own"][1] == 3


@pytest.mark.spec("T13", "T4")
def test_the_binder_says_how_the_op_is_called() -> None:
    out = torch.empty(16, 8)

    def bind(op: Any, case: Case) -> Implementation:
        def run(x: torch.Tensor) -> torch.Tensor:
            out.copy_(op(x))
            return out

        return Implementation(run=run, owned_outputs=(out,), backend="bound")

    found = compare({}, binder=bind)
    assert found.row("tileops").check is Check.VERIFIED
    assert found.row("tileops").backend == "bound"
    with pytest.raises(UsageError, match="gave no implementation: not built"):
        compare({}, binder=lambda op, case: Unavailable("not built"))


@pytest.mark.spec("T14")
def test_an_unavailable_baseline_is_a_row_and_the_rest_goes_on(make_session: Callable[..., Session]) -> None:
    others = {"gone": Unavailable("no such library"), "torch": lambda x: x * 2}
    found = compare(others)
    assert found.row("gone").check is Check.UNAVAILABLE
    assert note_text(found.row("gone").note) == "no such library"
    assert found.row("gone").timing is None
    assert found.row("torch").ratio is not None
    strict = make_session(require_baselines=True)
    with use_session(strict), pytest.raises(UnavailableError, match=r"gone \(no such library\)"):
        compare(others)
    assert len(strict.rows) == 3


@pytest.mark.spec("T15")
def test_the_reference_runs_once_however_many_implementations_there_are() -> None:
    calls = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x * 2

    compare({"a": lambda x: x * 2, "b": lambda x: x + x}, reference=reference)
    assert len(calls) == 1


@pytest.mark.spec("T15")
def test_implementations_are_compared_with_the_reference_and_not_with_each_other() -> None:
    with pytest.raises(VerificationError) as caught:
        compare({"right": lambda x: x * 3, "wrong": lambda x: x * 2}, reference=lambda x: x * 3)
    checks = {r.implementation: r.check for r in caught.value.comparison}
    assert checks == {"tileops": Check.FAILED, "right": Check.VERIFIED, "wrong": Check.FAILED}


@pytest.mark.spec("T16")
def test_reset_runs_before_each_call() -> None:
    log: list[str] = []

    def run() -> torch.Tensor:
        log.append("run")
        return expected * 2

    case = make_case()
    expected = case.inputs[0].clone()
    implementation = Implementation(run=run, args=(), reset=lambda: log.append("reset"))
    Runner(TwiceOp(), case).compare({"x": implementation})
    runs = [i for i, what in enumerate(log) if what == "run"]
    assert len(runs) > 4
    assert all(log[i - 1] == "reset" for i in runs)


def write_first(x: torch.Tensor) -> torch.Tensor:
    x[0, 0] += 1
    return x * 2


@pytest.mark.spec("T17")
@pytest.mark.parametrize(
    "declaration",
    [Exact(), Unestablished("no rule yet"), ReferenceInfeasible("too large"), Noncomparable("random")],
    ids=lambda d: type(d).__name__,
)
def test_writing_the_shared_inputs_is_an_error_by_name_under_every_declaration(
    declaration: Any, session: Session
) -> None:
    case = make_case(declaration)
    before = case.inputs[0].clone()
    with pytest.raises(InputsModifiedError, match="writer wrote to the inputs"):
        Runner(TwiceOp(), case).compare({"writer": write_first, "other": lambda x: x * 2})
    assert torch.equal(case.inputs[0], before)
    assert all(r.timing is None for r in session.rows)
    assert {r.implementation: r.check.value for r in session.rows}["writer"] == "failed"


@pytest.mark.spec("T17", "T23")
def test_writing_the_shared_inputs_through_explicit_args_or_as_noncomparable_is_found_too() -> None:
    case = make_case()
    before = case.inputs[0].clone()
    view = case.inputs[0].t()
    for implementation in (
        Implementation(run=lambda v: v.mul_(2).t().clone(), args=(view,)),
        Implementation(run=write_first, noncomparable_reason="other semantics"),
    ):
        with pytest.raises(InputsModifiedError, match="x wrote to the inputs"):
            Runner(TwiceOp(), case).compare({"x": implementation})
        assert torch.equal(case.inputs[0], before)


@pytest.mark.spec("T17")
def test_an_implementation_that_writes_the_inputs_and_then_raises_leaves_them_restored() -> None:
    def run(x: torch.Tensor) -> None:
        x.zero_()
        raise ValueError("after the damage")

    case = make_case()
    before = case.inputs[0].clone()
    with pytest.raises(ImplementationError, match="x raised ValueError: after the damage"):
        Runner(TwiceOp(), case).compare({"x": run})
    assert torch.equal(case.inputs[0], before)


@pytest.mark.spec("T17")
def test_a_reference_that_writes_the_inputs_is_named() -> None:
    with pytest.raises(InputsModifiedError, match="the reference wrote"):
        compare({}, reference=lambda x: x.mul_(2))


@pytest.mark.spec("T18", "T24")
def test_a_failed_check_stops_the_comparison_before_timing_and_says_where(session: Session) -> None:
    def off_by_one(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[3, 4] += 1
        return out

    with pytest.raises(VerificationError, match="bad does not match the reference") as caught:
        compare({"bad": off_by_one, "good": lambda x: x * 2})
    rows = {r.implementation: r for r in caught.value.comparison}
    assert rows["bad"].check is Check.FAILED
    (output,) = rows["bad"].outputs
    assert output.worst_index == (3, 4)
    assert output.mismatched == 1
    assert output.total == 128
    assert output.max_abs_error == pytest.approx(1, rel=1e-4)
    assert rows["good"].check is Check.VERIFIED
    assert "not timed: bad failed" in map(note_text, rows["good"].notes)
    assert all(r.timing is None and r.ratio is None for r in rows.values())
    assert len(session.rows) == 3


@pytest.mark.spec("T18")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: None, "None"),
        (lambda x: (x * 2)[:1], "shape"),
        (lambda x: (x * 2).double(), "float64"),
        (lambda x: (x * 2, x), "tuple"),
        (lambda x: [], "list"),
    ],
)
def test_wrong_structure_fails_before_numbers(wrong: Any, words: str) -> None:
    with pytest.raises(VerificationError, match=words):
        compare({"x": wrong})


@pytest.mark.spec("T19", "T20")
@pytest.mark.parametrize(
    ("declaration", "check", "has_ratio"),
    [
        (Exact(), Check.VERIFIED, True),
        (
            Custom(lambda got, expected: torch.testing.assert_close(got, expected), "by hand"),
            Check.CUSTOM,
            True,
        ),
        (Unestablished("no rule yet"), Check.UNVERIFIED, False),
        (ReferenceInfeasible("too large"), Check.UNVERIFIED, False),
        (Noncomparable("random"), Check.NONCOMPARABLE, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_declaration_gives_its_status_and_its_ratio_or_none(
    declaration: Any, check: Check, has_ratio: bool
) -> None:
    found = compare({"x": lambda x: x * 2}, declaration=declaration)
    assert {r.check for r in found} == {check}
    assert all(r.timing is not None for r in found)
    assert (found.ratio("x") is not None) is has_ratio


@pytest.mark.spec("T19")
def test_partial_checks_the_first_outputs_and_says_which_it_did_not() -> None:
    pair = lambda x: (x * 2, x * 5)  # noqa: E731
    found = compare(
        {"x": lambda x: (x + x, x * 7)},
        declaration=Partial(1),
        reference=pair,
        binder=lambda op, case: lambda x: (op(x), x),
    )
    assert {r.check for r in found} == {Check.PARTIAL}
    assert "output[1]" in note_text(found.row("x").note)
    assert found.ratio("x") is not None


@pytest.mark.spec("T21")
def test_a_reference_out_of_memory_leaves_every_row_unverified_and_the_run_goes_on() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("tried to allocate 900 GiB")

    found = compare({"x": lambda x: x * 3}, reference=reference)
    assert {r.check for r in found} == {Check.UNVERIFIED}
    assert all(
        "out of memory" in note_text(r.note) and r.timing is not None and r.ratio is None for r in found
    )


@pytest.mark.spec("T21")
def test_an_implementation_out_of_memory_is_its_own_failure() -> None:
    def greedy(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(2**60, dtype=torch.float32)

    with pytest.raises(DeviceMemoryError, match="greedy ran out of memory") as caught:
        compare({"greedy": greedy, "x": lambda x: x * 2})
    assert caught.value.comparison.row("greedy").check is Check.FAILED
    assert caught.value.comparison.row("x").check is Check.VERIFIED


@pytest.mark.spec("T22")
def test_the_reference_itself_takes_the_ops_status_and_a_wrapper_is_checked() -> None:
    calls = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return x * 2

    case = make_case(reference=reference)
    found = Runner(TwiceOp(), case).compare({"torch": case.reference, "wrapped": lambda x: case.reference(x)})
    assert found.row("torch").check is Check.VERIFIED
    assert found.row("torch").outputs == ()
    assert found.row("wrapped").outputs != ()
    case = make_case(Unestablished("no rule"), reference=reference)
    assert Runner(TwiceOp(), case).compare({"torch": case.reference}).row("torch").check is Check.UNVERIFIED


@pytest.mark.spec("T22")
@pytest.mark.parametrize("options", [{"args": (torch.zeros(16, 8),)}, {"reset": lambda: None}])
def test_the_reference_with_other_args_or_a_reset_is_checked(options: dict[str, Any]) -> None:
    case = make_case()
    implementation = Implementation(run=case.reference, **options)
    if "args" in options:
        with pytest.raises(VerificationError, match="does not match"):
            Runner(TwiceOp(), case).compare({"torch": implementation})
    else:
        found = Runner(TwiceOp(), case).compare({"torch": implementation})
        assert found.row("torch").outputs != ()


@pytest.mark.spec("T23")
def test_a_noncomparable_implementation_is_timed_and_its_error_is_shown_as_information() -> None:
    found = compare(
        {"vendor": Implementation(run=lambda x: x * 2.5, noncomparable_reason="rounds otherwise")}
    )
    row = found.row("vendor")
    assert row.check is Check.NONCOMPARABLE
    assert note_text(row.note) == "rounds otherwise"
    assert row.timing is not None
    assert row.ratio is None
    assert any("for information" in note and "worst error" in note for note in map(note_text, row.notes))


@pytest.mark.spec("T25")
def test_a_checked_declaration_without_a_reference_is_an_error() -> None:
    with pytest.raises(UsageError, match="reference"):
        compare({}, reference=None)


@pytest.mark.spec("T26")
def test_an_owned_output_that_is_not_written_fails() -> None:
    out = torch.empty(16, 8)

    def half(x: torch.Tensor) -> torch.Tensor:
        out[:8] = x[:8] * 2
        return out

    case = make_case()
    out.copy_(case.inputs[0] * 2)  # the answer is already there
    with pytest.raises(VerificationError, match="64 of 128"):
        Runner(TwiceOp(), case).compare({"half": Implementation(run=half, owned_outputs=(out,))})


@pytest.mark.spec("T26")
def test_an_owned_output_left_unwritten_is_found_also_where_the_check_does_not_look() -> None:
    out, extra = torch.empty(16, 8), torch.empty(4)

    def forgets(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out.copy_(x * 2)
        extra[1:] = 0
        return out, extra

    pair = lambda x: (x * 2, x)  # noqa: E731
    implementation = Implementation(run=forgets, owned_outputs=(out, extra))
    with pytest.raises(VerificationError, match=r"unwritten: .*1 of 4 elements"):
        compare(
            {"forgets": implementation},
            declaration=Partial(1),
            reference=pair,
            binder=lambda op, case: lambda x: (op(x), x),
        )


@pytest.mark.spec("T27")
def test_verifying_only_times_nothing_and_keeps_each_error(make_session: Callable[..., Session]) -> None:
    with use_session(make_session(verify_only=True)):
        found = compare({"x": lambda x: x * 2 + 1e-7})
        assert all(r.timing is None and r.ratio is None and r.check is Check.VERIFIED for r in found)
        assert found.row("x").outputs[0].error_over_tolerance is not None
        with pytest.raises(VerificationError):
            compare({"x": lambda x: x * 3})


@pytest.mark.spec("T33")
def test_an_error_while_timing_propagates_and_the_rows_say_that_they_have_no_time(session: Session) -> None:
    calls = []

    def tires(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        if len(calls) > 8:
            raise ValueError("tired")
        return x * 2

    with pytest.raises(ValueError, match="tired"):
        compare({"tires": tires})
    assert len(session.rows) == 2
    assert all(any("not timed: ValueError: tired" in note_text(n) for n in r.notes) for r in session.rows)


@pytest.mark.spec("T37")
def test_flops_and_bytes_come_from_the_op_once_after_timing() -> None:
    asked = []

    class Counting(TwiceOp):
        def eval_roofline(self) -> tuple[int, int, str]:
            asked.append(None)
            return super().eval_roofline()

    case = make_case()
    case.op_class = Counting
    found = Runner(Counting(), case).compare({"x": lambda x: x * 2})
    assert len(asked) == 1
    for row in found:
        assert row.roofline.bytes == 1024
        seconds = row.timing.device_busy.median_ns / 1e9
        assert row.roofline.bandwidth_tbs == pytest.approx(1024 / seconds / 1e12)


def test_an_answer_kept_by_address_is_found() -> None:
    kept: dict[int, torch.Tensor] = {}

    def caching(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = x * 2
        return kept[x.data_ptr()]

    with pytest.raises(VerificationError, match="caching does not match"):
        compare({"caching": caching})


def test_an_implementation_that_stops_working_after_its_check_fails_while_it_is_timed(
    session: Session,
) -> None:
    calls = []
    last: list[torch.Tensor] = []

    def lazy(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        if len(calls) < 6:
            last[:] = [x * 2]
        return last[0]

    with pytest.raises(VerificationError, match="lazy was right when it was checked and wrong") as caught:
        compare({"lazy": lazy})
    assert caught.value.comparison.row("lazy").check is Check.FAILED
    assert all(r.timing is None for r in session.rows)


class FreshArguments:
    """Arguments with new values before each call."""

    def __init__(self) -> None:
        self.arguments = (torch.zeros(16, 8),)
        self.now = torch.zeros(16, 8)

    def reset(self) -> None:
        self.now = torch.randn(16, 8)
        self.arguments[0].copy_(self.now)

    def implementation(self, run: Callable[..., Any], **more: Any) -> Implementation:
        guard = Renewed(self.arguments, lambda: (self.now,))
        return Implementation(run, self.arguments, self.reset, guards=(guard,), **more)


def test_where_reset_draws_new_values_outputs_are_compared_with_the_answer_to_those(session: Session) -> None:
    kept: dict[float, torch.Tensor] = {}

    def by_content(x: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(float(x.sum()), x * 2).clone()

    found = compare({"right": FreshArguments().implementation(by_content)})
    assert found.row("right").check is Check.VERIFIED
    assert len(kept) > found.row("right").timing.device_busy.samples
    first: list[torch.Tensor] = []

    def once(x: torch.Tensor) -> torch.Tensor:
        first.append(x * 2)
        return first[0].clone()

    with pytest.raises(VerificationError, match="once does not match the reference"):
        compare({"once": FreshArguments().implementation(once)})


def test_writing_arguments_that_reset_draws_is_found_too() -> None:
    with pytest.raises(InputsModifiedError, match=r"doubling wrote to its inputs \(inputs\[0\]\)"):
        compare({"doubling": FreshArguments().implementation(lambda x: x.mul_(2))})


def test_what_no_call_may_do_fails_the_row_with_its_own_words() -> None:
    class Third(Guard):
        looks = 0

        def exit(self, who: str) -> VerificationError | None:
            self.looks += 1
            return VerificationError(f"{who} left a thread behind") if self.looks == 3 else None

    with pytest.raises(VerificationError, match="TwiceOp-test: x left a thread behind"):
        compare({"x": Implementation(lambda x: x * 2, guards=(Third(),))})


def test_values_drawn_without_a_reset_or_arguments_are_an_error_of_use() -> None:
    for incomplete in ({"args": (1,)}, {"reset": list}, {"args": (), "reset": list}):
        with pytest.raises(UsageError, match="tells what reset put into args"):
            Implementation(print, guards=(Renewed((), tuple),), **incomplete)


def test_a_check_that_zeros_would_pass_verifies_nothing() -> None:
    declaration = Custom(lambda got, expected: None, "accepts anything")
    found = compare({"x": lambda x: x * 0}, declaration=declaration)
    assert {r.check for r in found} == {Check.UNVERIFIED}
    assert "vacuous" in note_text(found.row("x").note)
    assert found.ratio("x") is None


@pytest.mark.parametrize(("other_values", "calls"), [(True, 3), (False, 1)])
def test_calls_on_other_values_can_be_left_to_another_check_of_the_same_code(
    make_session: Callable[..., Session], other_values: bool, calls: int
) -> None:
    seen: list[torch.Tensor] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x * 2

    session = make_session(verify_only=True, other_values=other_values)
    with use_session(session):
        Runner(TwiceOp(), make_case()).compare({"other": double})
    assert len(seen) == calls
    assert session.rows[1].check is Check.VERIFIED
