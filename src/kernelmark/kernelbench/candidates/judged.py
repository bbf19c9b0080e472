"""What became of a candidate, as a value, and as a line of a file that a run can be taken up from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmark.files import replace
from kernelmark.kernelbench.candidates.job import CANDIDATE
from kernelmark.kernelbench.results import require_alike
from kernelmark.kernelbench.statuses import Outcome, Status

__all__ = ["KEPT", "Judged", "Speedup", "read_judged", "take_up"]

KEPT, _ASKED = "candidates.jsonl", "candidates.asked.json"
"""A line for each candidate; and how they are judged."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """A baseline's time over the candidate's, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one candidate."""

    name: str
    problem: str
    status: Status
    message: str = ""
    """Why it is not verified."""
    time_ns: float | None = None
    """The median of its timed calls."""
    speedups: dict[str, Speedup] = field(default_factory=dict)
    """By baseline."""
    notes: tuple[str, ...] = ()
    wall_s: float = 0.0
    fingerprint: str = ""
    """Of the files and settings; one that is the same need not be judged again."""

    @property
    def outcome(self) -> Outcome:
        """Its end as the lists of statuses have it."""
        return Outcome(self.name, CANDIDATE, self.status, self.message, self.wall_s)

    def to_json(self) -> str:
        """Write it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Judged:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: or TypeError, KeyError, AttributeError, where the line is something else.
        """
        told = json.loads(line)
        speedups = {name: Speedup(**each) for name, each in told["speedups"].items()}
        return cls(
            **{
                **told,
                "status": Status(told["status"]),
                "speedups": speedups,
                "notes": tuple(told["notes"]),
            }
        )


def take_up(out: Path, judging: Mapping[str, object], *, resume: bool) -> dict[str, Judged]:
    """Start a run of candidates in ``out``, or take up the one that is there; give what was judged before by name.

    Args:
        out: The folder of the run.
        judging: How candidates are judged, by the options' names.
        resume: Whether to go on; else the run takes the place of an earlier one.

    Raises:
        UsageError: it would go on in another way than it began; nothing is touched.
    """
    file = out / _ASKED
    asked = {name: str(value) for name, value in judging.items()}
    if resume and file.is_file():
        require_alike(json.loads(file.read_text(encoding="utf-8")), asked)
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        (out / KEPT).unlink(missing_ok=True)
    replace(file, json.dumps(asked, indent=1) + "\n")
    return read_judged(out / KEPT)


def read_judged(file: Path) -> dict[str, Judged]:
    """Read the candidates of an earlier run by name, the last of each; a line cut short by a kill is left out."""
    found: dict[str, Judged] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            one = Judged.from_json(line)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        found[one.name] = one
    return found
