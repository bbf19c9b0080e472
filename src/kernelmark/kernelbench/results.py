"""What a run of a suite leaves in its folder, and how it is read back: its header, outcomes, and each kernel's records.

Format history
    1: ``run.json`` (how it was run), ``outcomes.jsonl`` (a kernel a line), ``kernels/NAME/records.jsonl``.

Nothing is computed here, and nothing is rendered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path

from pydantic import ValidationError

from kernelmark.errors import RecordError, UsageError
from kernelmark.files import replace
from kernelmark.kernelbench.statuses import Outcome, Status
from kernelmark.kernelbench.suite import Sizes
from kernelmark.records import RECORDS_FILE, Record, Role, StoredRun, read_run
from kernelmark.report.notes import note_text

__all__ = [
    "FORMAT_VERSION",
    "HEADER",
    "OUTCOMES",
    "KernelResult",
    "SuiteHeader",
    "SuiteRun",
    "begin",
    "finish",
    "kernel_folder",
    "log_name",
    "read_header",
    "read_outcomes",
    "read_suite_run",
    "require_alike",
]

FORMAT_VERSION = 1
HEADER, OUTCOMES = "run.json", "outcomes.jsonl"
_ALIKE = ("dtype", "sizes", "device", "benchmark", "smoke", "torch_compile", "infer_shapes", "extra")
"""What two halves of one run must have in common."""


class SuiteHeader(Record):
    """How a suite was run."""

    format_version: int = FORMAT_VERSION
    run: str
    started: str
    ended: str | None = None
    """When it came to its end; ``None`` for one that did not."""
    resumed: tuple[str, ...] = ()
    """When it was taken up again."""
    command: tuple[str, ...] = ()
    root: str = ""
    """The tree that holds the model files."""
    dtype: str = "f32"
    sizes: Sizes = Sizes.SUITE
    device: str = "cpu"
    benchmark: bool = False
    smoke: bool = False
    torch_compile: bool = False
    infer_shapes: bool = False
    jobs: int = 1
    time_limit_s: float
    memory_limit_bytes: int | None = None
    extra: tuple[str, ...] = ()

    def require_alike(self, other: SuiteHeader) -> None:
        """Check that ``other`` may go on with this run.

        Raises:
            UsageError: it runs the kernels in another way.
        """
        mine, theirs = ({name: getattr(each, name) for name in _ALIKE} for each in (self, other))
        require_alike(mine, theirs)


@dataclass(frozen=True, slots=True)
class KernelResult:
    """One kernel of a run: what became of it, and its records, where it came so far."""

    outcome: Outcome
    stored: StoredRun | None
    unreadable: str = ""
    """Why its records cannot be read, as where its process was killed while it began them."""

    @property
    def name(self) -> str:
        """The kernel's name without its ending."""
        return self.outcome.kernel.removesuffix(".py")


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of a suite as read back."""

    folder: Path
    header: SuiteHeader
    kernels: tuple[KernelResult, ...]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each kernel."""
        return tuple(kernel.outcome for kernel in self.kernels)


def require_alike(kept: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """Check that a run may be taken up: that what is asked for is what was asked for when it began.

    Raises:
        UsageError: it is not; names the first option that differs.
    """
    for name, now in asked.items():
        if kept.get(name) != now:
            raise UsageError(
                f"--resume: the run in --out was made with {name} {_shown(kept.get(name))}, and this one asks for"
                f" {_shown(now)}; ask for the same, or name another --out"
            )


def log_name(kernel: str) -> str:
    """Give the name under which a kernel's log and folder are kept."""
    return kernel.removesuffix(".py").replace("/", "-")


def kernel_folder(out: Path, kernel: str) -> Path:
    """Give the folder of a kernel's own run."""
    return out / "kernels" / log_name(kernel)


def begin(out: Path, header: SuiteHeader, kernels: Iterable[str], *, resume: bool) -> tuple[Outcome, ...]:
    """Start a run in ``out``, or take up the one that is there; give the outcomes that need no second run.

    A new run takes the place of an earlier one. One that is taken up and has nothing left to run stays as it is.

    Raises:
        UsageError: it would go on in another way than it began.
        RecordError: the run that is there cannot be read.
    """
    earlier = read_header(out) if resume else None
    if earlier is not None:
        earlier.require_alike(header)
    if not resume:
        (out / OUTCOMES).unlink(missing_ok=True)
    done = read_outcomes(out)
    if earlier is None:
        _write_header(out, header)
    elif set(kernels) - {outcome.kernel for outcome in done}:
        resumed = (*earlier.resumed, header.started)
        _write_header(out, earlier.model_copy(update={"resumed": resumed, "ended": None}))
    return done


def finish(out: Path, ended: str) -> None:
    """Note when the run came to its end; one that had come to it before stays as it is."""
    header = read_header(out)
    if header is not None and header.ended is None:
        _write_header(out, header.model_copy(update={"ended": ended}))


def _write_header(out: Path, header: SuiteHeader) -> None:
    out.mkdir(parents=True, exist_ok=True)
    replace(out / HEADER, header.model_dump_json(indent=1) + "\n")


def read_header(out: Path) -> SuiteHeader | None:
    """Read how the suite in ``out`` was run; ``None`` where there is no such run.

    Raises:
        RecordError: it is malformed, or of a newer format.
    """
    file = out / HEADER
    if not file.is_file():
        return None
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        version = value.get("format_version") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise RecordError(
                f"{file}: format {version}, this program reads {FORMAT_VERSION}; use the kernelmark that wrote it"
            )
        return SuiteHeader.model_validate_json(file.read_bytes())
    except (OSError, ValueError, ValidationError) as error:
        raise RecordError(
            f"{file}: it cannot be read ({error}); name the --out of a kernelbench run"
        ) from error


def read_outcomes(out: Path) -> tuple[Outcome, ...]:
    """Read the outcomes of an earlier run, the last of each kernel; a line cut short by a kill is left out."""
    file = out / OUTCOMES
    if not file.is_file():
        return ()
    found: dict[str, Outcome] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            value = json.loads(line)
            outcome = Outcome(**{**value, "status": Status(value["status"])})
        except (ValueError, TypeError, KeyError):
            continue
        found[outcome.kernel] = outcome
    return tuple(found.values())


def read_suite_run(out: Path) -> SuiteRun:
    """Read a run: kernels by level and number.

    Raises:
        RecordError: there is none, or its header is malformed.
    """
    header = read_header(out)
    if header is None:
        raise RecordError(f"{out}: there is no {HEADER}; name the --out of a kernelbench run")
    outcomes = sorted(read_outcomes(out), key=lambda outcome: _by_number(outcome.kernel))
    return SuiteRun(out, header, tuple(_result(out, each) for each in outcomes))


def _result(out: Path, outcome: Outcome) -> KernelResult:
    folder = kernel_folder(out, outcome.kernel)
    if not (folder / RECORDS_FILE).is_file():
        return KernelResult(outcome, None)
    try:
        stored = read_run(folder)
    except RecordError as error:
        return KernelResult(outcome, None, str(error))
    ours = next((row for row in stored.rows if row.role is Role.OURS), None)
    if outcome.status is Status.VERIFIED and ours is not None and not ours.check.comparable:
        # a run of before took a command's exit status of 0 for its word
        outcome = changed(outcome, status=Status.UNVERIFIED, message=note_text(ours.note))
    return KernelResult(outcome, stored)


def _by_number(kernel: str) -> tuple[tuple[int, str], ...]:
    parts = re.findall(r"\d+|\D+", kernel)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def _shown(value: object) -> str:
    return " ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)
