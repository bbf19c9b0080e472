"""The quick path: two functions, no manifest, the same engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelmark
from kernelmark.errors import UsageError, VerificationError
from kernelmark.harness import SessionOptions
from kernelmark.records import Cache, Check, read_run
from kernelmark.timing import Budget

QUICK = SessionOptions(
    cache=Cache.WARM, budget=Budget(warmup_ms=0.01, sample_ms=0.01, min_count=4, max_count=4, blocks=2)
)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_two_functions_are_checked_and_compared() -> None:
    found = kernelmark.compare(
        {"mine": lambda x: x + x, "torch": twice}, inputs=(torch.randn(8),), reference=twice, options=QUICK
    )
    assert [r.check for r in found] == [Check.VERIFIED, Check.VERIFIED]
    assert found.ratio("torch").value > 0
    assert "mine" in str(found)
    assert "torch" in str(found)


def test_a_failed_check_raises_with_the_rows() -> None:
    with pytest.raises(VerificationError) as caught:
        kernelmark.compare(
            {"mine": lambda x: x, "torch": twice}, inputs=(torch.randn(8),), reference=twice, options=QUICK
        )
    assert caught.value.comparison.row("mine").check is Check.FAILED


def test_without_a_reference_nothing_is_checked_and_the_rows_say_so() -> None:
    found = kernelmark.compare({"a": twice, "b": twice}, inputs=(torch.randn(8),), options=QUICK)
    assert {r.check for r in found} == {Check.UNVERIFIED}
    assert found.ratio("b") is None


def test_a_run_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    from dataclasses import replace

    out = tmp_path / "run"
    kernelmark.compare(
        {"a": twice}, inputs=(torch.randn(8),), reference=twice, options=replace(QUICK, out=out)
    )
    run = read_run(out)
    assert [r.implementation for r in run.rows] == ["a"]
    assert run.end is not None
    assert run.end.outcome == "completed"
    assert {p.name for p in out.iterdir()} >= {"records.jsonl", "report.md", "report.json", "report.csv"}


@pytest.mark.parametrize(
    ("implementations", "inputs"),
    [({}, ()), ([twice], ()), ({"a": twice}, torch.ones(2)), ({"a": kernelmark.Unavailable("gone")}, ())],
)
def test_bad_arguments_say_what_to_write(implementations: object, inputs: object) -> None:
    with pytest.raises(UsageError):
        kernelmark.compare(implementations, inputs=inputs)  # type: ignore[arg-type]


def test_a_tolerance_is_a_figure_two_figures_or_a_rule_and_the_row_says_who_said_it() -> None:
    from kernelmark.verify import Reduction

    def off(x: torch.Tensor) -> torch.Tensor:
        return twice(x) * 1.001

    def check(**given: object) -> object:
        return (
            kernelmark.compare(
                {"mine": off},
                inputs=(torch.ones(8),),
                reference=twice,
                options=QUICK,
                **given,  # type: ignore[arg-type]
            )
            .row("mine")
            .outputs[0]
        )

    for tolerance in (0.01, (0.0, 0.01), Reduction(2**30)):
        assert check(tolerance=tolerance).tolerance_source == "tolerance"
    for refused in (0.0001, (0.0, 1e-4), None):
        with pytest.raises(VerificationError):
            check(tolerance=refused)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"verification": 0.01},
            r"compare\(verification=\.\.\.\) is 0\.01; it must be one of Exact, .*tolerance=0\.01",
        ),
        ({"tolerance": "tight"}, r"tolerance = 'tight': give one number"),
        ({"tolerance": 0.1, "verification": kernelmark.compare}, "verification and tolerance"),
    ],
)
def test_a_check_that_cannot_be_says_what_can(given: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kernelmark.compare({"a": twice}, inputs=(torch.ones(2),), reference=twice, **given)
