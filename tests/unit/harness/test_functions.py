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
