"""The errors kernelmark raises on purpose: one class per cause, so that status and exit code follow from the type.

This module knows nothing else of the package. Every message says what was asked, what was found,
and what to do; the text is written where the facts are.
"""

from __future__ import annotations

from typing import Any


class KernelmarkError(Exception):
    """Base of every error that kernelmark raises on purpose."""


# --- what was asked for cannot be done as asked: exit code 2 -------------------------------------


class UsageError(KernelmarkError, ValueError):
    """A call, option or declaration that no run could satisfy; found before anything runs.

    It is a :class:`ValueError` too, which is what a wrong argument raises anywhere else in Python.
    """


class ConfigError(UsageError):
    """``[tool.kernelmark]`` is missing, malformed, or names something that is not there."""


class EntryError(UsageError):
    """An op without an entry, an op with two entries, or an entry that names no op."""


class FileError(UsageError):
    """A file of the project's that cannot be used.

    Args:
        message: What was found and what was expected.
        path: The file.
        line: The line in that file, from 1.
        field: The dotted name of the field, such as ``ops.BmmFwdOp.inputs.a.shape``.
    """

    def __init__(
        self, message: str, *, path: str | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        self.message, self.path, self.line, self.field = message, path, line, field
        where = f"{path or '<text>'}:{line}" if line is not None else path
        parts = [p for p in (where, field) if p]
        super().__init__(f"{': '.join(parts)}: {message}" if parts else message)


class ManifestError(FileError):
    """A manifest that cannot be used."""


class ProfileError(FileError):
    """A hardware profile that cannot be read, or that lacks what a profile must hold."""


class ScheduleError(FileError):
    """A schedule's descriptor that cannot be used, or no descriptor where one was asked for."""


class SuiteError(FileError):
    """A suite of kernels that cannot be used, or an entry of one."""


class ModelFileError(UsageError):
    """A model file that lacks what a model file must hold, or whose own code raised; names the file and the line."""


# --- this machine lacks something: exit code 3 -----------------------------------------------------


class UnavailableError(KernelmarkError):
    """A library, device or instrument that this machine does not have, with the reason and the fix."""


class OutOfMemoryError(UnavailableError):
    """This machine, or a process's limit, has not the memory that a run needs; ``__cause__`` is the allocator's."""


class RecordError(KernelmarkError):
    """A stored run that cannot be written, read, or compared; what was written before stays valid."""


# --- an implementation is wrong: exit code 1 -------------------------------------------------------


class VerificationError(KernelmarkError):
    """At least one implementation failed its check, so nothing was timed.

    ``comparison`` holds the rows of the comparison, the ``failed`` ones among them.
    """

    def __init__(self, message: str, *, comparison: Any = None) -> None:
        super().__init__(message)
        self.comparison = comparison


class InputsModifiedError(VerificationError):
    """An implementation wrote to the inputs that all implementations share; they have been restored."""


class OutOfBoundsError(VerificationError):
    """An implementation wrote to memory beside its buffers."""


class ImplementationError(VerificationError):
    """An implementation raised while it was being checked; ``__cause__`` is its own exception."""


class DeviceMemoryError(VerificationError):
    """An implementation ran out of memory while it was being checked; ``__cause__`` is the allocator's error."""


class CrashedError(VerificationError):
    """What was run gave no answer at all: it raised, exited, hung, or its process died; exit code 4."""


class TimeLimitError(CrashedError):
    """What was run did not end within its time, and was ended."""


# --- a model could not be compiled, or the compiled one could not be called: exit code 4 ----------


class ModelError(KernelmarkError):
    """A model that did not get through one stage of the compiler; there is a subclass for each stage.

    Args:
        message: What was asked, what was found, and what to do.
        op: The operation it stopped at, such as ``aten.fft_rfft``, where one is known.
        source: ``file:line`` in the model, where one is known.
    """

    stage = "model"

    def __init__(self, message: str, *, op: str | None = None, source: str | None = None) -> None:
        self.op, self.source = op, source
        super().__init__(f"{source}: {message}" if source else message)


class ModelImportError(ModelError):
    """PyTorch cannot export the model, or torch-mlir cannot import what was exported."""

    stage = "import"


class ModelLoweringError(ModelError):
    """A step of the schedule refused the module, or left something that no later step can lower."""

    stage = "lower"


class ModelCompileError(ModelError):
    """LLVM made no machine code of the module, or a symbol that the code calls does not exist."""

    stage = "compile"


class ModelRunError(ModelError):
    """The compiled model was called with what it does not take."""

    stage = "run"


# --- the instrument cannot vouch for its reading ---------------------------------------------------


class TimingError(KernelmarkError):
    """A reading that cannot be trusted and is therefore not given."""


class EmptyIterationError(TimingError):
    """A timed call that the instrument saw no work from."""


class UnattributedActivityError(TimingError):
    """Work on the device that belongs to no timed call, reset or flush."""


class OnlyCopiesError(TimingError):
    """A call made only of copies while ``count_copies`` is False, so its busy time would be nothing."""


class OffThreadLaunchError(TimingError):
    """Work launched from a thread other than the one that made the call, as ``Tensor.backward`` does."""


class RecordsLostError(TimingError):
    """The instrument dropped records, and went on dropping them with the largest buffer."""


class LossCounterUnprovedError(TimingError):
    """The instrument's own count of dropped records could not be shown to work."""


class InstrumentConflictError(TimingError):
    """Another profiler holds, or has held, what this instrument needs in this process."""


# --- several processes measure together ----------------------------------------------------------------


class DistributedError(KernelmarkError):
    """A rank left, does not answer, or was asked for something else than the others; names it where known.

    ``measured`` holds what all ranks had measured before, in the shape of the result: ``impls``, ``round_samples``,
    ``samples`` and ``ranks`` of whole rounds.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.measured: dict[str, Any] = {}
