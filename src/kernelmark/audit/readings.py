"""What an instrument says in an audit, as values: a reading, or why there is none. Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Failure", "Reading", "Said", "from_line", "from_lines", "to_line"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one call, as one instrument read it."""

    instrument: str
    call: str
    run: int
    ns: float
    """The instrument's median over its own samples."""
    samples: int | None = None
    cost_s: float | None = None
    """What it took to get there, by the host's clock."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an instrument gave nothing: for one call, or for none at all."""

    instrument: str
    reason: str
    call: str | None = None
    unavailable: bool = False
    """It is not here, or may not be used here; otherwise it is here and could not vouch for a reading."""


Said = Reading | Failure

_KINDS: dict[str, type[Reading] | type[Failure]] = {"reading": Reading, "failure": Failure}


def to_line(said: Said) -> str:
    """Write ``said`` in one line of JSON."""
    return json.dumps({"kind": "reading" if isinstance(said, Reading) else "failure", **asdict(said)}) + "\n"


def from_lines(lines: Iterable[str]) -> Iterator[Said]:
    """Read what :func:`to_line` wrote; a last line that is cut short, as by a death, is left out."""
    for line in lines:
        if line.endswith("\n"):
            yield from_line(line)


def from_line(line: str) -> Said:
    """Read one line."""
    raw: dict[str, Any] = json.loads(line)
    return _KINDS[raw.pop("kind")](**raw)
