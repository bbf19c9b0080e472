"""What no search could use is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import UsageError
from kernelmark.models.request import Mode, ModelRequest
from kernelmark.models.tuning.request import TuneRequest

MODEL = ModelRequest(Path("models/net.py"), pipeline=("matmul", "mine/last.yaml"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"candidates": 1}, "--candidates 1: give a whole number of at least 2"),
        ({"candidates": True}, "--candidates True"),
        ({"seed": -1}, "--seed -1: give a whole number of at least 0"),
        ({"budget_s": 0.0}, "--budget 0.0: give a number of seconds above 0"),
        ({"budget_s": float("inf")}, "--budget inf"),
        ({"limit_s": -3.0}, "--limit -3.0"),
        ({"model": ModelRequest(Path("net.py"), mode=Mode.TORCH_COMPILE)}, "leave --torch-compile out"),
        ({"model": ModelRequest(Path("net.py"), device="cuda")}, "for the CPU"),
    ],
)
def test_a_number_that_no_search_could_use_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TuneRequest(**{"model": MODEL, **given})


def test_a_search_has_a_folder_and_a_descriptor() -> None:
    assert TuneRequest(MODEL).folder == Path("runs/tune/net-matmul-last")
    assert TuneRequest(MODEL).descriptor == Path("runs/tune/net-matmul-last/tuned.yaml")
    assert TuneRequest(MODEL, out=Path("a")).descriptor == Path("a/tuned.yaml")
    assert TuneRequest(MODEL, out=Path("a"), write=Path("b.yaml")).descriptor == Path("b.yaml")
