"""The parent's own numbers: from raw samples, whatever the worker says they add up to."""

from __future__ import annotations

import pytest

from kernelmark.errors import CrashedError, TimingError
from kernelmark.kernelfile.judging import judged_rows, missing_rows, twice_checked
from kernelmark.kernelfile.request import SecondCheck
from kernelmark.records import Check, Note, NoteKind
from kernelmark.report.notes import note_text


@pytest.fixture
def rows(run):
    return run(num_trials=20).rows


def forged(row, busy_ns: float):
    """Give ``row`` with statistics that its samples do not bear out."""
    statistics = row.timing.device_busy.model_copy(update={"median_ns": busy_ns, "mean_ns": busy_ns})
    return row.model_copy(update={"timing": row.timing.model_copy(update={"device_busy": statistics})})


def test_statistics_and_ratios_come_from_the_samples(rows) -> None:
    ours, eager = rows
    wrong = (forged(ours, 1.0), eager.model_copy(update={"ratio": None}))
    again = judged_rows(wrong, {}, wall_s=1e6)
    assert again[0].timing.device_busy == ours.timing.device_busy
    assert again[1].ratio == eager.ratio


def test_notes_of_the_worker_are_added_to_their_row(rows) -> None:
    note = Note.of(NoteKind.RECOMPILED, graphs=1)
    ours, eager = judged_rows(rows, {"pytorch-eager": [note]}, wall_s=1e6)
    assert eager.notes == (*rows[1].notes, note)
    assert ours.notes == rows[0].notes


def test_more_time_in_the_samples_than_the_parent_saw_is_no_reading(rows) -> None:
    with pytest.raises(TimingError, match="tampered"):
        judged_rows(rows, {}, wall_s=1e-9)


def test_a_dead_worker_s_rows_are_accounted_for(asked) -> None:
    error = CrashedError("died of SIGSEGV\nlast lines")
    made = missing_rows(asked(baselines="all"), (), error, "stack")
    assert [row.implementation for row in made] == [
        "solution",
        "pytorch-eager",
        "torch-compile",
        "flashinfer",
    ]
    assert made[0].check is Check.FAILED
    assert (note_text(made[0].note), made[0].traceback) == ("died of SIGSEGV", "stack")
    assert all(row.check is Check.UNVERIFIED and "crashed" in note_text(row.note) for row in made[1:])


@pytest.mark.parametrize(
    ("second", "check", "said"),
    [
        (SecondCheck(), Check.VERIFIED, "never loaded it"),
        (
            SecondCheck(undone="its data are more"),
            Check.VERIFIED,
            "in its own process only: its data are more",
        ),
        (SecondCheck(vacuous="zeros would pass"), Check.UNVERIFIED, "zeros would pass"),
        (SecondCheck(wrong="3 are off"), Check.FAILED, "checked again, outside it"),
        (SecondCheck(broken="no room\nstack"), Check.VERIFIED, "could not be checked again: no room"),
    ],
)
def test_what_the_second_check_found_is_on_the_row_of_the_solution(rows, second, check, said: str) -> None:
    ours, eager = judged_rows(twice_checked(rows, second), {}, wall_s=1e6)
    assert ours.check is check
    assert any(said in text for text in map(note_text, (ours.note, *ours.notes)))
    # no ratio to what is not known to be right
    good = check is Check.VERIFIED and not second.broken
    assert (ours.timing is not None) is (good or bool(second.vacuous))
    assert (eager.ratio is not None) is good
