"""What a search keeps beside its records: what it was asked, and how much time it has taken.

Whatever was judged stands in the records. The order of the candidates follows from what was asked, so that a search
that is gone on with needs no more than this to be the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmark.errors import RecordError, UsageError
from kernelmark.report import write_report

__all__ = ["STATE_FILE", "VERSION", "State", "read_state"]

STATE_FILE = "search.json"
VERSION = 1
"""Format history: 1: question, spent_s, candidates."""


@dataclass(slots=True)
class State:
    """The state of one search."""

    question: dict[str, str] = field(default_factory=dict)
    """What must be the same for what was judged to hold: each thing by name, in words."""
    spent_s: float = 0.0
    """Seconds that checking and racing have taken so far."""
    candidates: int = 0
    """How many candidates were asked for."""
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Keep it, all of it or what was there before.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(
                f"cannot make the folder {folder}: {error.strerror}; choose another --out"
            ) from error
        write_report(folder / STATE_FILE, json.dumps(asdict(self), indent=1) + "\n")

    def require_same(self, question: Mapping[str, str], folder: Path) -> None:
        """Refuse to go on with another search than the one that was begun.

        Raises:
            UsageError: something differs; the message names it, and both values.
        """
        for name in {**self.question, **question}:
            before, now = self.question.get(name, "nothing"), question.get(name, "nothing")
            if before != now:
                raise UsageError(
                    f"--resume: the search in {folder} was begun with {name} {before}, and this is {now};"
                    " give what it was begun with, or another --out"
                )


def read_state(folder: Path) -> State:
    """Read what :meth:`State.write` wrote.

    Raises:
        UsageError: there is no search in the folder.
        RecordError: the file is malformed, or of another version.
    """
    path = folder / STATE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"--resume: there is no search in {folder} ({STATE_FILE} is not there)") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    try:
        value = json.loads(text)
        if value["version"] != VERSION:
            raise RecordError(f"{path}: version {value['version']}, and this program reads {VERSION}")
        state = State(**value)
        return State(
            {str(name): str(each) for name, each in state.question.items()},
            float(state.spent_s),
            int(state.candidates),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(
            f"{path}: no search's state ({type(error).__name__}: {error}); begin anew in another --out"
        ) from error
