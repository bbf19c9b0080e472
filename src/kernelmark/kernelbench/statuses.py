"""What became of a kernel: the statuses, which of two is worse, and lists of them that may only get better.

Pure values and text; how a status was found is the driver's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelmark.errors import SuiteError, UsageError
from kernelmark.records import Cause, Fate, Stage
from kernelmark.text import suggestion

__all__ = ["Outcome", "Status", "read_expected", "summary", "worse_than", "write_expected"]


class Status(StrEnum):
    """How a kernel ended, from best to worst."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    """Nothing wrong was found, and nothing vouches for it: wrong answers would pass too, or no time can be trusted."""
    WRONG = "wrong"
    RUN_FAILURE = "run failure"
    COMPILE_FAILURE = "compile failure"
    LOWER_FAILURE = "lower failure"
    IMPORT_FAILURE = "import failure"
    OUT_OF_MEMORY = "out of memory"
    TIMEOUT = "timeout"
    CRASH = "crash"
    UNAVAILABLE = "unavailable"
    """It could not be tried: a file, a package or a device is missing."""

    @property
    def rank(self) -> int:
        """Its place in the order, 0 for the best."""
        return list(Status).index(self)

    @classmethod
    def of(cls, fate: Fate) -> Status:
        """Give the status of a kernel whose worker came to ``fate``."""
        if fate.cause is None:
            return cls.VERIFIED if fate.check is not None and fate.check.comparable else cls.UNVERIFIED
        if fate.cause in (Cause.REFUSED, Cause.RAISED):
            return _BY_STAGE.get(fate.stage, cls.RUN_FAILURE)
        return _BY_CAUSE[fate.cause]


_BY_STAGE = {
    Stage.IMPORT: Status.IMPORT_FAILURE,
    Stage.LOWER: Status.LOWER_FAILURE,
    Stage.COMPILE: Status.COMPILE_FAILURE,
}
"""Where the stage says what failed; what raised or was refused in another one failed to run."""

_BY_CAUSE = {
    Cause.USAGE: Status.UNAVAILABLE,
    Cause.UNAVAILABLE: Status.UNAVAILABLE,
    Cause.STORAGE: Status.UNAVAILABLE,
    Cause.INTERRUPTED: Status.UNAVAILABLE,
    Cause.PIPE_CLOSED: Status.UNAVAILABLE,
    Cause.MEMORY: Status.OUT_OF_MEMORY,
    Cause.LIMIT: Status.TIMEOUT,
    Cause.DIED: Status.CRASH,
    Cause.BUG: Status.CRASH,
    Cause.PEER: Status.CRASH,
    Cause.WRONG: Status.WRONG,
    Cause.DOUBT: Status.UNVERIFIED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel."""

    kernel: str
    pipeline: str
    status: Status
    message: str = ""
    """Why it is not verified: the first line of the error, or by how much the answer is wrong."""
    wall_s: float = 0.0
    """How long its worker took, its start included, and without the time for which it was held for another's."""


def summary(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Count statuses, in all and for each pipeline, as lines of text."""
    outcomes = tuple(outcomes)
    lines = [f"{len(outcomes)} kernels: {_counts(outcomes)}"]
    pipelines = sorted({outcome.pipeline for outcome in outcomes})
    for pipeline in pipelines if len(pipelines) > 1 else ():
        of_it = [outcome for outcome in outcomes if outcome.pipeline == pipeline]
        lines.append(f"  {pipeline}: {_counts(of_it)}")
    return tuple(lines)


def worse_than(expected: Mapping[str, Status], outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Name each kernel that ended worse than ``expected`` has it, in a line each.

    A kernel that the list does not name must be verified.
    """
    lines = []
    for outcome in outcomes:
        wanted = expected.get(outcome.kernel, Status.VERIFIED)
        if outcome.status.rank > wanted.rank:
            why = f": {outcome.message}" if outcome.message else ""
            lines.append(f"{outcome.kernel}: {outcome.status}, expected {wanted}{why}")
    return tuple(lines)


def read_expected(path: Path) -> dict[str, Status]:
    """Read a kept list: a line ``KERNEL: STATUS`` each; blank lines and ``#`` lines say nothing.

    Raises:
        UsageError: it cannot be read.
        SuiteError: a line is malformed, or names a kernel twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--expect {path}: it cannot be read ({error})") from error
    expected: dict[str, Status] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        kernel, colon, word = content.partition(":")
        kernel, word = kernel.strip(), word.strip()
        if not colon or word not in list(Status):
            hint = suggestion(word, list(Status), there_are="statuses")
            raise SuiteError(f"{content!r}: write KERNEL: STATUS; {hint}", path=str(path), line=number)
        if kernel in expected:
            raise SuiteError(f"{kernel} stands here a second time; keep one", path=str(path), line=number)
        expected[kernel] = Status(word)
    return expected


def write_expected(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Keep what is not verified as the list that a later run may not be worse than."""
    lines = [f"{o.kernel}: {o.status}" for o in outcomes if o.status is not Status.VERIFIED]
    head = "# What is not verified. A kernel that is not named here is; a run may not be worse than this.\n"
    path.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def _counts(outcomes: Iterable[Outcome]) -> str:
    counted = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counted[status]} {status}" for status in Status if counted[status])
