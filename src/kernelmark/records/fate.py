"""What became of something that was tried: the stage where it ended, what ended it there, and what is known of it.

One value for every way in; the words that people and scripts see are tables over it, and stand where they are used::

    Fate.of(error)                          # an error, also one that a worker raised: its class says everything
    row.fate                                # a row: its check, and whether it was timed
    Fate(Stage.RUN, Cause.LIMIT)            # a process that was ended at its limit, in the stage that it told last
    Status.of(fate), exit_code_of(fate)

Nothing is decided by the text of an error. A way in that needs to know more than this says gives its error a class
of its own and a line in :data:`_BY_ERROR`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernelmark import errors

__all__ = ["Cause", "Check", "Fate", "RunOutcome", "Stage"]


class Check(StrEnum):
    """What is known about an implementation's answers. The order is the order of trust."""

    VERIFIED = "verified"
    PARTIAL = "partial"
    CUSTOM = "custom"
    UNVERIFIED = "unverified"
    NONCOMPARABLE = "noncomparable"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"

    @property
    def comparable(self) -> bool:
        """Whether a row with this check may take part in a ratio."""
        return self in (Check.VERIFIED, Check.PARTIAL, Check.CUSTOM)

    @property
    def timeable(self) -> bool:
        """Whether a row with this check may hold a time."""
        return self not in (Check.FAILED, Check.UNAVAILABLE)


class Stage(StrEnum):
    """How far something came, from the first stage to the last; a way in goes through those that it has."""

    ASKED = "asked"
    """Nothing has run: options, files and the machine were looked at."""
    IMPORT = "import"
    LOWER = "lower"
    COMPILE = "compile"
    LOAD = "load"
    """Its file or library was loaded, its functions were found."""
    RUN = "run"
    """It was called, and its answers were not there yet."""
    CHECK = "check"
    """Its answers were compared."""
    TIME = "time"


class Cause(StrEnum):
    """What ended it at its stage."""

    USAGE = "usage"
    """No run could satisfy what was asked for."""
    UNAVAILABLE = "unavailable"
    """This machine lacks something."""
    STORAGE = "storage"
    """A file cannot be written or read."""
    REFUSED = "refused"
    """A stage of a compiler refused it."""
    RAISED = "raised"
    """Its own code raised."""
    MEMORY = "memory"
    """The memory was not enough, or the limit of it."""
    LIMIT = "limit"
    """It did not end within its time."""
    DIED = "died"
    """Its process died, or gave no answer at all."""
    WRONG = "wrong"
    """Its answers are wrong, or it wrote where it must not."""
    DOUBT = "doubt"
    """An instrument cannot vouch for its reading."""
    PEER = "peer"
    """Another rank left, or asked for something else."""
    INTERRUPTED = "interrupted"
    """Somebody stopped it from the keyboard."""
    PIPE_CLOSED = "pipe closed"
    """Whoever read its output stopped reading."""
    BUG = "bug"
    """kernelmark itself went wrong."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of something.

    Args:
        stage: The last that it reached.
        cause: What ended it there; ``None`` for what was done as asked.
        check: What is known of its answers; ``None`` where nothing was to be checked, or nobody came to it.
    """

    stage: Stage
    cause: Cause | None = None
    check: Check | None = None

    @property
    def done(self) -> bool:
        """Whether everything that was asked for was done; whether its answers are vouched for says ``check``."""
        return self.cause is None

    @classmethod
    def of(cls, error: BaseException | None) -> Fate:
        """Give what an error means, by the nearest class in the table; without an error, a whole way that was gone."""
        if error is None:
            return cls(Stage.TIME)
        return next(_BY_ERROR[each] for each in type(error).__mro__ if each in _BY_ERROR)

    @classmethod
    def of_check(cls, check: Check, *, timed: bool) -> Fate:
        """Give what the check of a row, and whether it holds a time, mean."""
        if check is Check.UNAVAILABLE:
            return cls(Stage.ASKED, Cause.UNAVAILABLE, check)
        stage = Stage.TIME if timed else Stage.CHECK
        return cls(stage, Cause.WRONG if check is Check.FAILED else None, check)


_BY_ERROR: Mapping[type[BaseException], Fate] = {
    errors.UsageError: Fate(Stage.ASKED, Cause.USAGE),
    errors.UnavailableError: Fate(Stage.ASKED, Cause.UNAVAILABLE),
    errors.OutOfMemoryError: Fate(Stage.RUN, Cause.MEMORY),
    errors.RecordError: Fate(Stage.ASKED, Cause.STORAGE),
    errors.VerificationError: Fate(Stage.CHECK, Cause.WRONG, Check.FAILED),
    errors.ImplementationError: Fate(Stage.RUN, Cause.RAISED, Check.FAILED),
    errors.DeviceMemoryError: Fate(Stage.RUN, Cause.MEMORY, Check.FAILED),
    errors.CrashedError: Fate(Stage.RUN, Cause.DIED, Check.FAILED),
    errors.TimeLimitError: Fate(Stage.RUN, Cause.LIMIT, Check.FAILED),
    errors.ModelError: Fate(Stage.COMPILE, Cause.REFUSED),
    errors.ModelImportError: Fate(Stage.IMPORT, Cause.REFUSED),
    errors.ModelLoweringError: Fate(Stage.LOWER, Cause.REFUSED),
    errors.ModelCompileError: Fate(Stage.COMPILE, Cause.REFUSED),
    errors.ModelRunError: Fate(Stage.RUN, Cause.REFUSED),
    errors.TimingError: Fate(Stage.TIME, Cause.DOUBT),
    errors.DistributedError: Fate(Stage.TIME, Cause.PEER),
    errors.KernelmarkError: Fate(Stage.CHECK, Cause.WRONG),
    KeyboardInterrupt: Fate(Stage.ASKED, Cause.INTERRUPTED),
    BrokenPipeError: Fate(Stage.ASKED, Cause.PIPE_CLOSED),
    MemoryError: Fate(Stage.RUN, Cause.MEMORY),
    OSError: Fate(Stage.ASKED, Cause.STORAGE),
    BaseException: Fate(Stage.ASKED, Cause.BUG),
}
"""By class, what an error of this package means, or one of Python's that reaches the outermost frame.

The stage is the earliest that such an error can come from, where its class does not tell."""


class RunOutcome(StrEnum):
    """How a run ended, as its end mark says."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
