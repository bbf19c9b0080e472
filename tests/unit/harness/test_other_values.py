"""Calls on other values: which there are, what they give, and that everything is as it was afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmark.device import open_device
from kernelmark.harness import Implementation, Session
from kernelmark.harness.other_values import OtherValues, run_once
from kernelmark.verify import InputGuard, fingerprint
from tests.unit.harness.builders import make_case


@pytest.fixture(autouse=True)
def _in_session(session: Session) -> Session:
    return session


def other_values(**options: Any) -> tuple[OtherValues, torch.Tensor]:
    case = make_case()
    implementation = Implementation(**{"run": lambda x: x * 2, **options})
    return OtherValues(implementation, case, InputGuard(case.inputs), open_device("cpu")), case.inputs[0]


def test_a_call_gives_the_answer_to_the_other_values_and_the_proper_ones_come_back() -> None:
    changes, x = other_values()
    before = x.clone()
    given = changes.call(changes.kinds[0])
    assert given not in (None, fingerprint(x * 2))
    assert torch.equal(x, before)
    assert len(changes.kinds) == 3
    assert changes.call(changes.kinds[2]) is None  # there are no integers


def test_what_a_call_raises_is_kept_and_the_values_come_back() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        x.zero_()
        raise ValueError("no")

    changes, x = other_values(run=refuses)
    before = x.clone()
    assert changes.call(changes.kinds[0]) is None
    assert "ValueError: no" in changes.refused[0]
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("options", "must_tell"),
    [
        ({}, True),
        ({"args": (torch.randn(16, 8),)}, True),
        ({"args": ()}, False),
        ({"args": (3,)}, False),
        ({"reset": lambda: None}, False),
    ],
)
def test_only_what_sees_the_values_must_answer_to_them(options: dict[str, Any], must_tell: bool) -> None:
    changes, _ = other_values(**options)
    assert changes.must_tell is must_tell
    assert len(changes.kinds) == (3 if must_tell else 1)


def test_a_call_is_reset_first() -> None:
    log: list[str] = []
    implementation = Implementation(lambda x: log.append("run"), reset=lambda: log.append("reset"))
    run_once(implementation, (torch.zeros(1),), open_device("cpu"))
    assert log == ["reset", "run"]
