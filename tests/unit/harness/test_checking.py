"""The check as a value: what becomes of one implementation, and what calls are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy
import pytest
import torch

import kernelmark
from kernelmark.device import open_device
from kernelmark.errors import (
    ImplementationError,
    InputsModifiedError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import Implementation, Session, SessionOptions, make_plan
from kernelmark.harness.checking import Finding, Findings, check_all
from kernelmark.records import Check
from kernelmark.verify import Exact, Guard, Unestablished
from tests.unit.harness.builders import compare, make_case

ONLY_CHECK = SessionOptions(verify_only=True, ceilings=False, device="cpu")


@pytest.fixture(autouse=True)
def _in_session(session: Session) -> Session:
    return session


def check(implementations: dict[str, Any], **options: Any) -> Findings:
    case = make_case(**options)
    ours = Implementation(lambda x: x * 2)
    return check_all(make_plan(case, ("ours", ours), implementations), open_device("cpu"))


def verdict(function: Callable[..., Any], reference: Callable[..., Any], *inputs: Any) -> Any:
    return kernelmark.compare(
        {"mine": function}, inputs=inputs, reference=reference, options=ONLY_CHECK
    ).rows[0]


def test_findings_are_values_and_a_failure_keeps_the_first_error() -> None:
    findings = check({"bad": lambda x: x * 3, "gone": kernelmark.Unavailable("no such library")})
    with pytest.raises(FrozenInstanceError):
        findings.plan = None  # type: ignore[misc]
    bad = findings.found["bad"]
    assert bad.failed
    assert bad.failing(VerificationError("a second one")) is bad
    assert findings.found["gone"].check is Check.UNAVAILABLE
    assert findings.stopped == "not timed: bad failed"
    assert isinstance(findings.error, VerificationError)
    assert [finding.check for finding in findings.found.values()] == [
        Check.VERIFIED,
        Check.FAILED,
        Check.UNAVAILABLE,
    ]
    assert isinstance(bad, Finding)


# --- a remembered answer


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    memory: dict[tuple[int, ...], Any] = {}

    def remembered(*args: torch.Tensor) -> Any:
        key = tuple(each.data_ptr() for each in args)
        if key not in memory:
            memory[key] = function(*args)
        return memory[key].clone()

    return remembered


REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sum": (torch.sum, (torch.randn(1 << 12),)),
    "max": (torch.max, (torch.randn(1 << 12),)),
    "norm": (torch.linalg.norm, (torch.randn(1 << 12),)),
    "sort": (lambda x: x.sort().values, (torch.randn(1 << 12),)),
    "histogram": (lambda x: torch.histc(x, 10), (torch.randn(1 << 12),)),
    "integer product": (torch.mm, (torch.randint(0, 9, (32, 32)), torch.randint(0, 9, (32, 32)))),
    "bincount": (torch.bincount, (torch.randint(0, 9, (512,)),)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_remembered_answer_is_found_where_a_permutation_changes_nothing(name: str) -> None:
    function, inputs = REDUCTIONS[name]
    before = [each.clone() for each in inputs]
    assert verdict(function, function, *inputs).check is Check.VERIFIED
    with pytest.raises(VerificationError, match="mine does not match the reference"):
        verdict(kept(function), function, *inputs)
    assert all(map(torch.equal, inputs, before))


def test_an_answer_that_no_value_changes_shows_nothing_and_verifies_nothing() -> None:
    row = verdict(lambda x: torch.full((4,), 7.0), lambda x: torch.full((4,), 7.0), torch.randn(9))
    assert row.check is Check.UNVERIFIED
    assert "nothing shows that the answer was computed" in str(row.note)


def test_a_structure_that_a_permutation_breaks_is_kept_by_scaling_the_whole() -> None:
    square = torch.randn(8, 8)
    positive = square @ square.T + 8 * torch.eye(8)
    assert verdict(torch.linalg.cholesky, torch.linalg.cholesky, positive).check is Check.VERIFIED


def test_what_refuses_all_other_values_is_unverified_with_what_it_raised() -> None:
    proper = torch.randn(8)
    expected = proper * 2

    def picky(x: torch.Tensor) -> torch.Tensor:
        if not torch.equal(x * 2, expected):
            raise ValueError("not these")
        return x * 2

    row = verdict(picky, lambda x: x * 2, proper)
    assert row.check is Check.UNVERIFIED
    assert "not these" in str(row.note)


def test_what_works_on_values_of_its_own_is_not_asked_to_see_others() -> None:
    own = torch.randn(16, 8)

    def run() -> torch.Tensor:
        return expected.clone()

    case = make_case()
    expected = case.inputs[0] * 2
    plan = make_plan(case, ("ours", Implementation(lambda x: x * 2)), {"x": Implementation(run, args=())})
    assert check_all(plan, open_device("cpu")).found["x"].check is Check.VERIFIED
    assert own.shape == (16, 8)


# --- inputs that are no tensors


def test_an_array_that_is_written_is_named_and_put_back() -> None:
    array = numpy.ones(9, dtype="float32")

    def mine(a: Any) -> torch.Tensor:
        a *= 2
        return torch.from_numpy(a.copy())

    with pytest.raises(InputsModifiedError, match=r"mine wrote to the inputs .*inputs\[0\]"):
        verdict(mine, lambda a: torch.from_numpy(a * 2), array)
    assert (array == 1).all()


def test_tensors_that_an_object_holds_are_guarded_with_the_attribute() -> None:
    class Weights:
        def __init__(self) -> None:
            self.scale = torch.full((4,), 2.0)

    weights = Weights()

    def spoils(x: torch.Tensor, w: Weights) -> torch.Tensor:
        out = x * w.scale
        w.scale = w.scale * 3
        return out

    with pytest.raises(InputsModifiedError, match="inputs\\[1\\]"):
        verdict(spoils, lambda x, w: x * w.scale, torch.randn(4), weights)
    assert torch.equal(weights.scale, torch.full((4,), 2.0))


def test_memory_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(UsageError, match=r"inputs\[0\] is a bytearray; .*give a tensor"):
        verdict(lambda b: torch.zeros(1), lambda b: torch.zeros(1), bytearray(4))


def test_a_reference_whose_answer_is_no_tensor_is_its_own_error() -> None:
    with pytest.raises(UsageError, match=r"the reference's output is a numpy\.ndarray, which is no output"):
        verdict(lambda x: x, lambda x: x.numpy(), torch.randn(4))


# --- the reference, and what a device leaves


def test_a_reference_that_writes_and_then_runs_out_of_memory_is_to_blame() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        x[0, 0] += 1
        raise torch.OutOfMemoryError("tried to allocate 900 GiB")

    with pytest.raises(InputsModifiedError, match="the reference wrote"):
        compare({"x": lambda x: x * 2}, reference=reference)


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_reference_that_writes_as_a_baseline_is_found_where_nothing_is_compared(
    verify_only: bool, make_session: Callable[..., Session]
) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    with (
        kernelmark.use_session(make_session(verify_only=verify_only)),
        pytest.raises(InputsModifiedError, match="torch wrote to the inputs"),
    ):
        compare({"torch": reference}, reference=reference, declaration=Unestablished("no rule yet"))


def test_an_error_that_stays_on_the_device_leaves_every_row() -> None:
    class Broken(Guard):
        """A guard on a device that is lost: it can no longer look."""

        def exit(self, who: str) -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def crashes(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("an illegal memory access")

    findings = check({"crashes": Implementation(crashes, guards=(Broken(),)), "next": lambda x: x * 2})
    assert findings.found["crashes"].failed
    assert "crashes raised RuntimeError: an illegal memory access" in findings.found["crashes"].note
    quiet = check({"quiet": Implementation(lambda x: x * 2, guards=(Broken(),))}).found["quiet"]
    assert isinstance(quiet.error, ImplementationError)
    assert "quiet could not be checked" in quiet.note


def test_a_setting_of_the_whole_process_is_for_no_implementation_to_change() -> None:
    threads = torch.get_num_threads()

    def slows_the_others(x: torch.Tensor) -> torch.Tensor:
        torch.set_num_threads(threads + 1)
        return x * 2

    try:
        with pytest.raises(VerificationError, match=r"slow left torch.get_num_threads\(\) changed, from"):
            compare({"slow": slows_the_others})
    finally:
        torch.set_num_threads(threads)


def test_declared_shapes_are_those_of_the_declaration() -> None:
    assert check({}, declaration=Exact()).found["ours"].outputs[0].shape == (16, 8)
