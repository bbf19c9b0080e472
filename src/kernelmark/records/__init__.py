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
from kernelmark.records.metadata import METADATA, Difference, Metadata, Unlike, refuse_unlike
from kernelmark.records.model import *  # noqa: F403 - the record types are this package's names
from kernelmark.records.model import __all__ as _model
from kernelmark.records.notes import NOTE_VALUES, Note, NoteKind

__all__ = [
    "FORMAT_VERSION",
    "METADATA",
    "NOTE_VALUES",
    "RECORDS_FILE",
    "Cause",
    "Check",
    "Difference",
    "Fate",
    "Metadata",
    "Note",
    "NoteKind",
    "RunOutcome",
    "RunWriter",
    "Stage",
    "StoredRun",
    "Unlike",
    "read_run",
    "refuse_other_caches",
    "refuse_unlike",
    *_model,
]
