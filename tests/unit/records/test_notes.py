"""Notes: a kind and the facts of that kind, and nothing else."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kernelmark.records import NOTE_VALUES, Note, NoteKind


def test_every_kind_has_its_facts_declared():
    assert set(NOTE_VALUES) == set(NoteKind)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"samples": 3}, "holds .'needed', 'samples'., and got .'samples'."),
        ({"samples": 3, "needed": 10, "more": 1}, "and got .'more', 'needed', 'samples'."),
        ({"samples": "many", "needed": 10}, "(?s)samples of a note of the kind 'no tails': .*integer"),
    ],
)
def test_other_facts_than_those_of_its_kind_are_refused(values: dict, told: str):
    with pytest.raises(ValidationError, match=told):
        Note.of(NoteKind.NO_TAILS, **values)


def test_a_note_comes_back_from_json_and_equals_itself():
    note = Note.of(NoteKind.NO_TAILS, samples=3, needed=10)
    again = Note.model_validate_json(note.model_dump_json())
    assert (again, again.values["samples"]) == (note, 3)


def test_a_users_text_is_a_note_of_its_own_kind():
    note = Note.of(NoteKind.TEXT, text="mind the gap")
    assert Note.model_validate("mind the gap") == Note.free("mind the gap") == note


def test_what_an_exception_said_keeps_its_class():
    assert Note.error(ValueError("no")) == Note.of(NoteKind.ERROR, type="ValueError", text="no")
