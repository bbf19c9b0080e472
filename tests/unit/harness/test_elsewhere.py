"""A comparison in a process of its own: real ones, on this CPU, with the conflict put there by hand."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelmark.errors import InputsModifiedError, InstrumentConflictError, VerificationError
from kernelmark.harness import Case, Implementation, Runner, Session, SessionOptions, compare
from kernelmark.harness import elsewhere as subject
from kernelmark.records import Cache, Check, Note, read_run
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget

CONFLICT = InstrumentConflictError("Proton was asked for, but torch.profiler came first. Use cupti")
QUICK = Budget(warmup_ms=0, sample_ms=0.01, min_count=4, max_count=4, blocks=2)
NOTE = (
    "checked and timed in a process of its own, because Proton was asked for, but torch.profiler came first"
)

FUNCTIONS = """
import os
from pathlib import Path

import torch

WHERE = Path(__file__).with_name("calls.txt")


def told(name):
    with open(WHERE, "a") as stream:
        stream.write(f"{name} {os.getpid()}\\n")


def reference(x):
    told("reference")
    return x * 2


def mine(x):
    told("mine")
    return x + x


def wrong(x):
    return x * 3


def spoils(x):
    return x.mul_(2)


def raises_when_timed(x):
    import gc

    if not gc.isenabled():
        raise ZeroDivisionError("while it was timed")
    return x * 2
"""


@pytest.fixture(autouse=True)
def in_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every session's timer be one that cannot follow what was used before."""
    monkeypatch.setattr(subject, "find_conflict", lambda timer, device: CONFLICT)


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the user's that another process can import, and that writes down who calls it."""
    (tmp_path / "users_functions.py").write_text(FUNCTIONS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module("users_functions")
    del sys.modules["users_functions"]


def options(out: Path | None = None, **more: object) -> SessionOptions:
    return SessionOptions(cache=Cache.WARM, budget=QUICK, out=out, ceilings=False, **more)  # type: ignore[arg-type]


def calls(functions: ModuleType) -> list[tuple[str, int]]:
    lines = functions.WHERE.read_text().splitlines() if functions.WHERE.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]


@pytest.mark.spec("X7", "T15", "T33")
def test_reference_check_timing_and_ratio_all_happen_in_the_other_process(
    functions: ModuleType, tmp_path: Path
) -> None:
    found = compare(
        {"mine": functions.mine, "theirs": functions.reference},
        inputs=(torch.randn(64),),
        reference=functions.reference,
        options=options(tmp_path / "run"),
    )
    made = calls(functions)
    assert os.getpid() not in {pid for _, pid in made}
    assert len({pid for _, pid in made}) == 1
    assert [row.check for row in found] == [Check.VERIFIED] * 2
    assert found.ratio("theirs") is not None
    assert all(row.notes[-1] == Note.free(NOTE) for row in found)
    stored = read_run(tmp_path / "run")
    assert stored.rows == found.rows
    assert stored.end is not None
    assert stored.end.outcome == "completed"


@pytest.mark.spec("X7", "T18")
def test_a_failed_check_there_is_a_failed_row_and_an_error_here(
    functions: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(VerificationError, match="wrong") as caught:
        compare(
            {"mine": functions.mine, "wrong": functions.wrong},
            inputs=(torch.ones(8),),
            reference=functions.reference,
            options=options(tmp_path / "run"),
        )
    assert [row.check for row in caught.value.comparison] == [Check.VERIFIED, Check.FAILED]
    assert read_run(tmp_path / "run").rows == caught.value.comparison.rows
    assert NOTE in caught.value.__notes__


@pytest.mark.spec("T17")
def test_inputs_given_as_explicit_arguments_are_still_the_shared_ones_there(functions: ModuleType) -> None:
    x = torch.ones(8)
    with pytest.raises(InputsModifiedError, match="spoils"):
        compare(
            {"mine": functions.mine, "spoils": Implementation(functions.spoils, args=(x,))},
            inputs=(x,),
            reference=functions.reference,
            options=options(),
        )
    assert torch.equal(x, torch.ones(8))


@pytest.mark.spec("T33")
def test_what_a_timed_call_raises_there_arrives_here_and_the_rows_say_that_they_have_no_time(
    functions: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError, match="while it was timed") as caught:
        compare(
            {"mine": functions.raises_when_timed},
            inputs=(torch.ones(8),),
            reference=functions.reference,
            options=options(tmp_path / "run"),
        )
    assert NOTE in caught.value.__notes__
    (row,) = read_run(tmp_path / "run").rows
    assert row.timing is None
    assert "not timed: ZeroDivisionError" in " ".join(map(note_text, row.notes))


@pytest.mark.spec("X7")
def test_what_cannot_be_sent_is_checked_here_and_refused_by_name_with_the_profiler_that_came_first(
    functions: ModuleType, tmp_path: Path
) -> None:
    message = r"torch\.profiler came first.*implementation 'theirs' cannot be sent.*can be imported"
    with pytest.raises(InstrumentConflictError, match=message):
        compare(
            {"mine": functions.mine, "theirs": lambda x: x * 2},
            inputs=(torch.ones(8),),
            reference=functions.reference,
            options=options(tmp_path / "run"),
        )
    assert {pid for _, pid in calls(functions)} == {os.getpid()}
    assert [name for name, _ in calls(functions)].count("reference") == 1
    rows = read_run(tmp_path / "run").rows
    assert [row.check for row in rows] == [Check.VERIFIED] * 2
    assert all("not timed: InstrumentConflictError" in " ".join(map(note_text, row.notes)) for row in rows)


def test_a_run_that_only_checks_is_not_moved(functions: ModuleType) -> None:
    compare(
        {"mine": functions.mine},
        inputs=(torch.ones(8),),
        reference=functions.reference,
        options=options(verify_only=True),
    )
    assert {pid for _, pid in calls(functions)} == {os.getpid()}


@pytest.mark.spec("X7", "T6")
def test_an_op_of_a_library_goes_with_its_case_and_brings_its_roofline_back(
    toy: Path, make_session: Callable[..., Session], session: Session
) -> None:
    from toy_ops import ScaleOp

    from kernelmark.harness import cases

    case: Case = cases(ScaleOp)[0]
    found = Runner(ScaleOp(**case.arguments), case).compare({"torch": case.reference})
    assert [row.check for row in found] == [Check.VERIFIED] * 2
    assert all(row.roofline is not None and row.roofline.flops == 128 for row in found)
    assert all(Note.free(NOTE) in row.notes for row in found)
    assert session.rows == list(found.rows)


@pytest.mark.parametrize("name", ["RMSNormFwdOp", "GemmFwdOp", "RMSNormBwdOp"])
def test_the_cases_of_this_repositorys_own_library_can_be_sent(name: str, session: Session) -> None:
    import tileops.ops
    from kernelmark.harness import library_at
    from kernelmark.timing.elsewhere import why_unsendable

    op = getattr(tileops.ops, name)
    case = library_at(Path(__file__).parents[3]).cases(op)[0]
    assert why_unsendable((case, op(**case.arguments), case.verification, case.reference)) == ""
    case.release()
