"""What a reader must know beside the numbers, as values: a kind, and the facts of that kind.

A note holds no sentence. :mod:`kernelmark.report.notes` alone turns one into text, by a table over the kinds, so
that whoever needs a fact (a comparison, a gate, another program) reads the value and nothing ever looks at words.

To add a kind: a member of :class:`NoteKind`, its facts with their types in :data:`NOTE_VALUES`, and its text in
``kernelmark.report.notes.TEXTS``, whose parameters are those facts; a test holds the three against each other.
Build one with ``Note.of(NoteKind.FEW_SAMPLES, samples=3, needed=5)``. ``NoteKind.TEXT`` is for what a user wrote,
and for nothing that a program knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

__all__ = ["NOTE_VALUES", "Note", "NoteKind", "NoteValue"]

NoteValue = str | bool | int | float | tuple[str, ...] | None
"""What a fact of a note may be; times are nanoseconds, sizes bytes, shares fractions, as everywhere in a record."""


class NoteKind(StrEnum):
    """What a note is about."""

    TEXT = "text"
    """A user's own words."""
    ERROR = "error"
    """What an exception said; ``type`` is its class."""
    FAILED = "failed"
    """What a candidate came to: a suite's word for it, and why."""
    NOT_TIMED = "not timed"
    UNAVAILABLE = "unavailable"
    """Why this machine has no such implementation."""
    FAILED_AT = "failed at"
    """What ended it, and the stage that it had come to."""
    SAME_CODE = "same code"
    """A candidate of a search is compiled to the code of another, which is named."""
    CANDIDATE = "candidate"
    """What became of a candidate of a search, and in which rung of its race, from 0."""
    MERGED = "merged"
    """The runs whose rows a run was put together from."""
    RESUMED = "resumed"
    """When a run was gone on with, and at which revision."""

    # kernel files
    NO_OPENMP = "no OpenMP"
    """Pragmas of OpenMP had no effect."""
    PART = "part"
    """The reference's answer fills a part of an output's buffer only."""
    SAME_DRAW = "same draw"
    """A ``setup`` gives the same values for every seed."""
    INTERPRETED = "interpreted"
    READS_BESIDE = "reads beside"
    SMALL_MISS = "small miss"
    """An answer is wrong by no more than rounding could explain."""
    RECOMPILED = "recompiled"
    CHECKED_INSIDE = "checked inside"
    """Checked in the solution's own process only, and why."""
    RIGHT_OUTSIDE = "right outside"
    WRONG_OUTSIDE = "wrong outside"
    VACUOUS = "vacuous"
    """Why a right answer proves nothing."""

    # samples and their statistics
    NO_DEVIATION = "no deviation"
    NO_TAILS = "no tails"
    EQUAL_SAMPLES = "equal samples"


NOTE_VALUES: Mapping[NoteKind, Mapping[str, Any]] = {
    NoteKind.TEXT: {"text": str},
    NoteKind.ERROR: {"type": str, "text": str},
    NoteKind.FAILED: {"status": str, "why": str},
    NoteKind.NOT_TIMED: {"why": str},
    NoteKind.UNAVAILABLE: {"reason": str},
    NoteKind.FAILED_AT: {"stage": str, "text": str},
    NoteKind.SAME_CODE: {"candidate": str},
    NoteKind.CANDIDATE: {"fate": str, "rung": int | None},
    NoteKind.MERGED: {"runs": str},
    NoteKind.RESUMED: {"at": str, "revision": str | None},
    NoteKind.NO_OPENMP: {},
    NoteKind.PART: {"output": str, "elements": int, "buffer": int},
    NoteKind.SAME_DRAW: {},
    NoteKind.INTERPRETED: {},
    NoteKind.READS_BESIDE: {"buffers": str},
    NoteKind.SMALL_MISS: {"times": int},
    NoteKind.RECOMPILED: {"graphs": int},
    NoteKind.CHECKED_INSIDE: {"why": str},
    NoteKind.RIGHT_OUTSIDE: {},
    NoteKind.WRONG_OUTSIDE: {},
    NoteKind.VACUOUS: {"why": str},
    NoteKind.NO_DEVIATION: {"samples": int, "needed": int},
    NoteKind.NO_TAILS: {"samples": int, "needed": int},
    NoteKind.EQUAL_SAMPLES: {"samples": int},
}
"""The facts of each kind, and their types."""


class Note(BaseModel):
    """One thing to know: its kind, and the facts of that kind.

    A bare text, as a user gives one, becomes a note of the kind ``text``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    kind: NoteKind
    values: dict[str, NoteValue] = Field(default_factory=dict)

    @classmethod
    def of(cls, kind: NoteKind, **values: NoteValue) -> Note:
        """Give the note of ``kind`` with these facts.

        Raises:
            ValueError: a fact is missing, is none of this kind's, or has another type.
        """
        return cls(kind=kind, values=values)

    @classmethod
    def free(cls, text: str) -> Note:
        """Give a user's own words as a note."""
        return cls.of(NoteKind.TEXT, text=text)

    @classmethod
    def error(cls, error: BaseException) -> Note:
        """Give what an exception said as a note."""
        return cls.of(NoteKind.ERROR, type=type(error).__name__, text=str(error))

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        return {"kind": NoteKind.TEXT, "values": {"text": str(given)}} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _has_the_facts_of_its_kind(self) -> Note:
        declared = _adapters(self.kind)
        if self.values.keys() != declared.keys():
            raise ValueError(
                f"a note of the kind {self.kind.value!r} holds {sorted(declared)}, and got {sorted(self.values)}"
            )
        for name, adapter in declared.items():
            try:
                self.values[name] = adapter.validate_python(self.values[name])
            except ValidationError as error:
                raise ValueError(f"{name} of a note of the kind {self.kind.value!r}: {error}") from error
        return self


@cache
def _adapters(kind: NoteKind) -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(type_) for name, type_ in NOTE_VALUES[kind].items()}
