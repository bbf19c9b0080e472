"""The records a run leaves: their types, and how they are read and written."""

# the public names of the modules are this package's
from kernelmark.records.codec import *  # noqa: F403
from kernelmark.records.fate import *  # noqa: F403
from kernelmark.records.merging import *  # noqa: F403
from kernelmark.records.metadata import *  # noqa: F403
from kernelmark.records.model import *  # noqa: F403
from kernelmark.records.notes import *  # noqa: F403
