"""The sentences that belong to one row."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from kernelmark.records import (
    NOTE_VALUES,
    Check,
    OutputCheck,
    Ratio,
    Role,
    RooflineReading,
    Row,
    Statistics,
    StoredRun,
)
from kernelmark.report import console_text
from kernelmark.report.notes import TEXTS, error_text, row_notes, uneven_blocks

OUTPUT = OutputCheck(
    output="out",
    dtype="float16",
    shape=(8, 4),
    tolerance="atol=0.001 rtol=0.001",
    passed=True,
    total=32,
    mismatched=0,
    max_abs_error=0.00021,
    error_over_tolerance=0.21,
)
WRONG = OUTPUT.model_copy(
    update={
        "passed": False,
        "mismatched": 3,
        "max_abs_error": 0.5,
        "error_over_tolerance": 91.5,
        "worst_index": (3, 1),
        "expected": "1.482",
        "got": "0.982",
    }
)


def test_a_row_with_nothing_to_say_says_nothing(make_row: Callable[..., Row], make_timing: Callable):
    assert row_notes(make_row()) == ()
    assert row_notes(make_row(timing=make_timing(drift=0.049))) == ()


@pytest.mark.spec("T14", "T19", "T20", "T23")
@pytest.mark.parametrize("check", [each for each in Check if each is not Check.VERIFIED])
def test_the_reason_for_a_check_comes_first_with_the_checks_own_word(
    make_row: Callable[..., Row], check: Check
):
    assert row_notes(make_row(check=check, note="the reason", notes=("more",))) == (
        f"{check.value}: the reason",
        "more",
    )


def test_a_failed_row_shows_the_worst_error_of_each_wrong_output_once(make_row: Callable[..., Row]):
    note = "vllm does not match the reference: out: 3 of 32 elements are off\n  worst at [3, 1]: expected ..."
    row = make_row(check=Check.FAILED, note=note, outputs=(OUTPUT, WRONG))
    assert row_notes(row) == (
        "failed: vllm does not match the reference: out: 3 of 32 elements are off",
        "out: largest error 0.500; at worst 91.5 times the tolerance (atol=0.001 rtol=0.001); 3 of 32 elements off,"
        " the worst at [3, 1]: expected 1.482, got 0.982",
    )


def test_a_row_that_failed_without_outputs_keeps_the_whole_message(make_row: Callable[..., Row]):
    row = make_row(check=Check.FAILED, note="vllm raised RuntimeError:\n  no kernel image")
    assert row_notes(row) == ("failed: vllm raised RuntimeError: no kernel image",)


def test_an_output_of_the_wrong_structure_says_so_in_place_of_numbers(make_row: Callable[..., Row]):
    structural = WRONG.model_copy(
        update={"max_abs_error": None, "message": "has shape (8,), expected (8, 4)"}
    )
    row = make_row(check=Check.FAILED, note="vllm differs", outputs=(structural,))
    assert row_notes(row)[1] == "out: has shape (8,), expected (8, 4)"


@pytest.mark.spec("T27")
def test_an_error_is_told_against_its_tolerance():
    assert (
        error_text(OUTPUT)
        == "out: largest error 0.000210; at worst 0.210 times the tolerance (atol=0.001 rtol=0.001)"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n_kernels_varied": True}, "the number of kernels varied from call to call; the largest is shown"),
        ({"uncounted_copy_ns": 1_450}, "copies of 1.450 µs a call are not in device busy"),
        ({"drift": 0.113}, "the second half of the passes took 11.3 % longer than the first"),
        ({"drift": -0.06}, "the second half of the passes took 6.0 % less long than the first"),
        ({"retries": 1}, "1 pass had to be read again"),
        ({"retries": 3}, "3 passes had to be read again"),
        ({"notes": ("read with device events",)}, "read with device events"),
    ],
)
def test_what_the_instrument_met_is_told(
    make_row: Callable[..., Row], make_timing: Callable, changes: dict, told: str
):
    assert row_notes(make_row(timing=make_timing(**changes))) == (told,)


def test_what_too_few_samples_cannot_tell_is_told(make_row: Callable[..., Row], make_timing: Callable):
    times = Statistics(samples=1, median_ns=1, mean_ns=1, min_ns=1, max_ns=1, notes=("1 sample: no spread",))
    assert row_notes(make_row(timing=make_timing(device_busy=times))) == ("1 sample: no spread",)


@pytest.mark.spec("T28")
def test_a_ratio_without_an_interval_says_why(make_row: Callable[..., Row], make_timing: Callable):
    row = make_row(timing=make_timing(), ratio=Ratio(value=1.1, blocks=1))
    assert row_notes(row) == ("the ratio is of 1 block, so it has no interval",)


def test_what_the_roofline_found_is_told(make_row: Callable[..., Row], make_timing: Callable):
    reading = RooflineReading(
        flops=1, bytes=1, tflops=1, bandwidth_tbs=1, anomaly="too fast", note="no profile"
    )
    assert row_notes(make_row(timing=make_timing(), roofline=reading)) == ("too fast", "no profile")


def test_a_note_is_told_once_and_in_one_line(make_row: Callable[..., Row], stored: StoredRun):
    assert row_notes(make_row(notes=("a\nb", "a\nb", "  "))) == ("a; b",)
    for row in stored.rows:
        notes = row_notes(row)
        assert len(set(notes)) == len(notes)
        assert all(len(note.splitlines()) == 1 for note in notes)


def test_every_kind_of_note_has_a_text_that_takes_its_facts():
    assert {kind: set(inspect.signature(text).parameters) for kind, text in TEXTS.items()} == {
        kind: set(values) for kind, values in NOTE_VALUES.items()
    }


@pytest.mark.parametrize(("theirs", "told"), [(2_000, False), (3_000, True), (1_000, True)])
def test_a_ratio_that_the_medians_contradict_is_explained(
    make_row: Callable[..., Row], make_timing: Callable, theirs: int, told: bool
):
    ratio = Ratio(value=2.0, low=1.9, high=2.1, blocks=10, verdict="faster")
    rows = [
        make_row("ours", role=Role.OURS, timing=make_timing(1_000)),
        make_row("torch", timing=make_timing(theirs), ratio=ratio),
    ]
    found = list(uneven_blocks(rows))
    assert bool(found) is told
    if told:
        assert "the ratio is 2.000 [1.900, 2.100] ours faster, and the medians are" in found[0]
        assert "look here uneven blocks: a case / torch" in console_text(rows)
