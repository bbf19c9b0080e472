"""Candidates that hang or crash are judged in processes that are ended; nothing else is lost with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmark.errors import CrashedError, ModelFileError
from kernelmark.models.request import ModelRequest
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.models.tuning.request import TuneRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget
from tests.unit.models.tuning.conftest import HEADER
from torchsched.bindings import available
from torchsched.elements import Element

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

QUICK = Budget(warmup_ms=0, sample_ms=1, min_count=8, max_count=8, blocks=4, prepare_ms=1)


def candidate(number: int, how: str) -> Candidate:
    return Candidate(number, {"how": how}, f"how={how}")


@pytest.fixture(scope="module")
def judge(workplace: Path) -> Iterator[ProcessJudge]:
    model = ModelRequest(workplace / "product.py", pipeline=(str(workplace / "ways.yaml"),), threads=1)
    with ProcessJudge(TuneRequest(model), Element.F32, HEADER) as opened:
        yield opened


@pytest.mark.spec("L12")
def test_one_that_crashes_has_a_row_and_the_others_are_checked(judge: ProcessJudge) -> None:
    hows = ("plain", "crash", "packed")
    rows = judge.check("c", [candidate(number, how) for number, how in enumerate(hows)], {})
    assert [row.implementation for row in rows] == [f"how={how}" for how in hows]
    assert [row.check for row in rows] == [Check.VERIFIED, Check.FAILED, Check.VERIFIED]
    assert note_text(rows[1].note).startswith("lower: its process died of SIGSEGV")
    assert rows[1].params == {"stage": "lower", "died": True}


@pytest.mark.spec("L12")
def test_one_that_hangs_and_holds_the_interpreter_is_ended_at_its_limit(
    judge: ProcessJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "limit_s", 1.0)
    (row,) = judge.check("c", [candidate(0, "hang")], {})
    assert row.check is Check.FAILED
    assert row.params["stage"] in ("import", "lower")  # a busy machine may not come further in a second
    assert "it did not end within 1 s; --limit gives it more" in note_text(row.note)


def test_a_run_that_one_contestant_kills_names_it(judge: ProcessJudge) -> None:
    measured = judge.measure("r", [candidate(0, "plain"), candidate(1, "crash")], QUICK, {})
    assert measured.rows == ()
    assert measured.at == 1
    assert "SIGSEGV" in measured.death


def test_a_model_that_cannot_be_loaded_is_the_error_that_it_is(
    judge: ProcessJudge, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "broken.py").write_text("class Model: pass\n")
    monkeypatch.setattr(judge, "_request", TuneRequest(ModelRequest(workplace / "broken.py")))
    with pytest.raises(ModelFileError, match="must be a class derived from"):
        judge.check("c", [candidate(0, "plain")], {})


def test_a_model_that_kills_its_process_is_no_candidates_fault(
    judge: ProcessJudge, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "deadly.py").write_text("import os\nos.abort()\n")
    monkeypatch.setattr(judge, "_request", TuneRequest(ModelRequest(workplace / "deadly.py")))
    with pytest.raises(CrashedError, match="no candidate was come to: its process died of SIGABRT"):
        judge.check("c", [candidate(0, "plain")], {})
