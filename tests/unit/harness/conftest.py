"""The toy library, and a session on the CPU that takes a handful of warm samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmark.harness import Case, Runner, Session, SessionOptions, cases, use_session
from kernelmark.records import Cache
from kernelmark.timing import Budget

TOY = Path(__file__).parents[2] / "data" / "toy_library"

QUICK = Budget(warmup_ms=0.01, sample_ms=0.01, min_count=4, max_count=4, blocks=2)


@pytest.fixture(autouse=True)
def _given_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a profile for any CPU, so that no test waits for a calibration."""
    monkeypatch.setenv("KERNELMARK_PROFILES", str(TOY.parent / "profiles"))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the toy library's folder."""
    monkeypatch.chdir(TOY)
    monkeypatch.setattr(sys, "path", [str(TOY), *sys.path])
    return TOY


@pytest.fixture
def session() -> Iterator[Session]:
    """A current session that keeps its rows in memory."""
    with use_session(Session(SessionOptions(device="cpu", cache=Cache.WARM, budget=QUICK))) as current:
        yield current


@pytest.fixture
def make_session() -> Callable[..., Session]:
    """Make sessions with other options."""

    def make(**options: object) -> Session:
        return Session(SessionOptions(**{"device": "cpu", "cache": Cache.WARM, "budget": QUICK, **options}))  # type: ignore[arg-type]

    return make


@pytest.fixture
def scale_case(toy: Path, session: Session) -> Case:
    from toy_ops import ScaleOp

    return cases(ScaleOp)[0]


@pytest.fixture
def scale(scale_case: Case) -> Runner:
    """A runner of the toy library's op on its first case."""
    from toy_ops import ScaleOp

    return Runner(ScaleOp(**scale_case.arguments), scale_case)
