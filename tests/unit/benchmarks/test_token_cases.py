"""How the token ops are called in a benchmark, and that the engine tells a right one from a wrong one.

The cases are small; the entries and the engine are the ones that the benchmarks use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kernelmark.errors import VerificationError
from kernelmark.harness import Case, Runner, Session, SessionOptions, library_at, use_session
from tileops.ops import (
    AttentionFwdOp,
    Int8QuantOp,
    MoeCombineOp,
    RMSNormBwdOp,
    SiluInplaceOp,
    TopKOp,
    base,
)
from workloads.activation import SiluInplaceWorkload
from workloads.attention import AttentionFwdWorkload
from workloads.moe import MoeCombineWorkload
from workloads.norm_bwd import RMSNormBwdWorkload
from workloads.quant import Int8QuantWorkload
from workloads.selection import TopKWorkload

F32 = torch.float32


@dataclass(frozen=True)
class Small:
    """An op with a workload small enough for a test."""

    op: Callable[[], Any]
    workload: Callable[[], Any]
    status: str
    """What the report says of a right answer."""


OPS = {
    "SiluInplaceOp": Small(
        lambda: SiluInplaceOp(elements=120, dtype="float32"),
        lambda: SiluInplaceWorkload((3, 40), F32),
        "verified",
    ),
    "RMSNormBwdOp": Small(
        lambda: RMSNormBwdOp(rows=16, columns=24, dtype="float32"),
        lambda: RMSNormBwdWorkload(16, 24, F32),
        "verified",
    ),
    "MoeCombineOp": Small(
        lambda: MoeCombineOp(tokens=9, top_k=3, hidden=40, dtype="float32", scale=2.5, shared=True),
        lambda: MoeCombineWorkload(9, 3, 40, F32, 2.5, True),
        "verified",
    ),
    "Int8QuantOp": Small(
        lambda: Int8QuantOp(rows=8, columns=256, dtype="float32"),
        lambda: Int8QuantWorkload(8, 256, F32, 1e-10),
        "custom",
    ),
    "TopKOp": Small(
        lambda: TopKOp(rows=6, columns=128, k=8, dtype="float32"),
        lambda: TopKWorkload(6, 128, 8, F32),
        "verified",
    ),
    "AttentionFwdOp": Small(
        lambda: AttentionFwdOp(
            batch=1, q_length=20, kv_length=33, heads=4, kv_heads=2, head_dim=16, dtype="float32"
        ),
        lambda: AttentionFwdWorkload((1, 20, 4, 16), (1, 33, 2, 16), F32, True),
        "partial",
    ),
}


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Check only, on the CPU, without waiting for a compiler."""
    monkeypatch.setattr(base, "cxx_compiler", lambda: None)
    with use_session(Session(SessionOptions(device="cpu", verify_only=True))) as current:
        yield current


@pytest.fixture
def make_case(request: pytest.FixtureRequest) -> Callable[[str], Case]:
    """Make a case of an op as its entry does, from the small workload."""
    entries = library_at(request.config.rootpath).entries

    def make(name: str) -> Case:
        entry = entries[name]
        return Case(
            f"{name}-small",
            OPS[name].workload,
            op=name,
            op_class=type(OPS[name].op()),
            library_name="tileops",
            inputs=entry.inputs,
            count_copies=entry.count_copies,
            binder=entry.binder,
        )

    return make


@pytest.mark.spec("T13", "T15", "T17")
@pytest.mark.parametrize("name", OPS)
def test_the_engine_finds_the_op_right_and_the_shared_inputs_unchanged(
    name: str, make_case: Callable[[str], Case]
) -> None:
    case, op = make_case(name), OPS[name].op()
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in case.inputs]
    comparison = Runner(op, case).compare({"torch": case.reference})
    assert [(row.implementation, str(row.check)) for row in comparison.rows] == [
        ("tileops", OPS[name].status),
        ("torch", OPS[name].status),
    ]
    for now, then in zip(case.inputs, before, strict=True):
        assert now is then is None or torch.equal(now, then)


@pytest.mark.spec("T18")
@pytest.mark.parametrize("name", OPS)
def test_the_engine_refuses_an_answer_that_is_a_little_off(
    name: str, make_case: Callable[[str], Case]
) -> None:
    case, op = make_case(name), OPS[name].op()

    def off(*inputs: Any) -> Any:
        answer = case.workload.reference(*inputs)
        first, *rest = answer if isinstance(answer, tuple) else (answer,)
        wrong = first + 1 if first.dtype == torch.int8 else first * 1.01
        return (wrong, *rest) if rest else wrong

    with pytest.raises(VerificationError, match="nearly"):
        Runner(op, case).compare({"nearly": off})


@pytest.mark.spec("T30")
def test_only_the_op_that_copies_its_result_counts_copies(request: pytest.FixtureRequest) -> None:
    entries = library_at(request.config.rootpath).entries
    assert [name for name in OPS if entries[name].count_copies] == ["SiluInplaceOp"]


@pytest.mark.spec("T16")
def test_the_in_place_op_gets_a_private_argument_that_reset_restores(
    make_case: Callable[[str], Case],
) -> None:
    case = make_case("SiluInplaceOp")
    (x,) = case.inputs
    bound = case.binder(OPS["SiluInplaceOp"].op(), case)
    (private,) = bound.args
    first = bound.run(private).clone()
    assert private.data_ptr() != x.data_ptr()
    assert not torch.equal(private, x)
    bound.reset()
    assert torch.equal(private, x)
    assert torch.equal(bound.run(private), first)


@pytest.mark.spec("T4")
def test_the_backward_op_gets_what_a_forward_pass_saved(make_case: Callable[[str], Case]) -> None:
    case = make_case("RMSNormBwdOp")
    _, x, weight, rstd = case.inputs
    assert torch.equal(rstd, case.workload.forward(x, weight)[1])
    torch.testing.assert_close((x * rstd[:, None]).square().mean(-1), torch.ones(16), rtol=1e-4, atol=0)


@pytest.mark.spec("T26")
def test_the_combine_writes_into_a_private_output_that_the_engine_may_poison(
    make_case: Callable[[str], Case],
) -> None:
    case = make_case("MoeCombineOp")
    bound = case.binder(OPS["MoeCombineOp"].op(), case)
    (owned,) = bound.owned_outputs
    owned.fill_(torch.nan)
    assert bound.run(*bound.args) is owned
    assert not owned.isnan().any()
    assert owned.data_ptr() != case.inputs[3].data_ptr()


@pytest.mark.spec("T26")
def test_a_combine_that_leaves_a_row_unwritten_is_found_out(make_case: Callable[[str], Case]) -> None:
    case, op = make_case("MoeCombineOp"), OPS["MoeCombineOp"].op()
    whole = op.forward

    def all_but_the_last(expert_out, positions, weights, out, shared):
        whole(expert_out, positions[:-1], weights[:-1], out[:-1], shared[:-1])
        return out

    op.forward = all_but_the_last
    with pytest.raises(VerificationError, match="tileops"):
        Runner(op, case).compare({})


@pytest.mark.spec("T7")
def test_the_quantisers_check_follows_the_inputs_of_its_case(make_case: Callable[[str], Case]) -> None:
    case = make_case("Int8QuantOp")
    (first,) = case.inputs
    case.release()
    (again,) = case.inputs
    assert again is not first
    assert torch.equal(again, first)
    Runner(OPS["Int8QuantOp"].op(), case).compare({})
