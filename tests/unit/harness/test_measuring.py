"""Timings and rows as values: what the audit draws, what is left out, and what a row says without a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernelmark
from kernelmark.device import open_device
from kernelmark.errors import UsageError, VerificationError
from kernelmark.harness import Implementation, Session, make_plan
from kernelmark.harness.checking import check_all
from kernelmark.harness.engine import carry_out
from kernelmark.harness.measuring import Timings, _Audit, rows_of, time_all
from kernelmark.records import Check
from tests.unit.harness.builders import TwiceOp, make_case


@pytest.fixture(autouse=True)
def _in_session(session: Session) -> Session:
    return session


def plan(others: dict[str, Any], *, leave_out: bool = False) -> Any:
    ours = Implementation(lambda x: x * 2)
    return make_plan(make_case(), ("ours", ours), others, leave_out=leave_out)


def test_audited_passes_are_drawn_from_all_and_one_of_them_surely_takes_place() -> None:
    findings = check_all(plan({}), open_device("cpu"))
    drawn = [_Audit(findings.watches, findings.found, 40)._chosen["ours"] for _ in range(200)]
    assert max(max(each) for each in drawn) > 30
    assert all(min(each) < 10 for each in drawn)
    assert _Audit(findings.watches, findings.found, 1)._chosen["ours"] == {0}


def test_timing_is_a_value_of_its_own_and_says_why_there_is_none(session: Session) -> None:
    findings = check_all(plan({"bad": lambda x: x * 3}), session.device)
    timings = time_all(findings, session, None)
    assert timings.why_none == "not timed: bad failed"
    assert isinstance(timings.error, VerificationError)
    rows = rows_of(timings, TwiceOp())
    assert [row.timing for row in rows] == [None, None]
    assert rows[0].backend == "torch"
    assert timings.timed == Timings(findings).timed == {}


def test_an_error_while_timing_is_in_the_outcome_with_all_rows(session: Session) -> None:
    refusal = RuntimeError("no instrument")
    session.start()
    outcome = carry_out(plan({"x": lambda x: x * 2}), session, None, refusal=refusal)
    assert outcome.error is refusal
    assert len(outcome.rows) == 2
    assert all("not timed: RuntimeError: no instrument" in str(row.notes) for row in outcome.rows)


def test_what_fails_can_be_left_out_and_the_others_are_timed(make_session: Callable[..., Session]) -> None:
    with kernelmark.use_session(make_session()) as current:
        found = kernelmark.compare(
            {"mine": lambda x: x * 2, "wrong": lambda x: x * 3, "torch": lambda x: x + x},
            inputs=(torch.randn(64),),
            reference=lambda x: x * 2,
            label="sixty-four",
            params={"n": 64},
            work=kernelmark.Work(64, 512, "float32"),
            on_failure="leave out",
        )
        assert current.rows == list(found.rows)
    assert [row.check for row in found] == [Check.VERIFIED, Check.FAILED, Check.VERIFIED]
    assert [row.timing is None for row in found] == [False, True, False]
    assert found.ratio("torch") is not None
    assert found.case == found.rows[0].case == "sixty-four"
    assert found.rows[0].params["n"] == 64
    assert found.rows[0].roofline is not None
    assert found.rows[0].roofline.bytes == 512


def test_where_ours_is_left_out_nothing_is_compared_with_it(make_session: Callable[..., Session]) -> None:
    with kernelmark.use_session(make_session()):
        found = kernelmark.compare(
            {"mine": lambda x: x * 3, "torch": lambda x: x + x},
            inputs=(torch.randn(64),),
            reference=lambda x: x * 2,
            on_failure="leave out",
        )
    assert [row.timing is None for row in found] == [True, False]
    assert found.ratio("torch") is None


def test_an_unknown_way_to_fail_and_work_of_another_kind_are_refused() -> None:
    given: dict[str, Any] = {"inputs": (torch.randn(4),), "reference": torch.neg}
    with pytest.raises(UsageError, match="'raise', or 'leave out'"):
        kernelmark.compare({"a": torch.neg}, on_failure="skip", **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"kernelmark\.Work"):
        kernelmark.compare({"a": torch.neg}, work=12, **given)  # type: ignore[arg-type]
