"""The records a run leaves: their types, and how they are read and written."""

from kernelmark.records.codec import (
    FORMAT_VERSION,
    RECORDS_FILE,
    RunWriter,
    StoredRun,
    read_run,
    refuse_other_caches,
)
from kernelmark.records.fate import Cause, Check, Fate, RunOutcome, Stage
from kernelmark.records.model import *  # noqa: F403 - the record types are this package's names
from kernelmark.records.model import __all__ as _model
from kernelmark.records.notes import NOTE_VALUES, Note, NoteKind

__all__ = [
    "FORMAT_VERSION",
    "NOTE_VALUES",
    "RECORDS_FILE",
    "Cause",
    "Check",
    "Fate",
    "Note",
    "NoteKind",
    "RunOutcome",
    "RunWriter",
    "Stage",
    "StoredRun",
    "read_run",
    "refuse_other_caches",
    *_model,
]
