"""What each error of a worker means for its candidate."""

from __future__ import annotations

import pytest
import torch

from kernelmark.errors import (
    CrashedError,
    DeviceMemoryError,
    ImplementationError,
    InputsModifiedError,
    KernelmarkError,
    ModelFileError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import Comparison
from kernelmark.kernelbench.candidates.worker import status_of
from kernelmark.kernelbench.statuses import Status
from kernelmark.records import Check, Role, Row


class CompilationError(Exception):
    """As Triton calls it."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def failing(name: str) -> Comparison:
    row = Row(case="c", implementation=name, role=Role.BASELINE, check=Check.FAILED, note="off")
    return Comparison("c", (row,))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (VerificationError("off"), Status.WRONG),
        (VerificationError("off", comparison=failing("candidate")), Status.WRONG),
        (VerificationError("off", comparison=failing("eager")), Status.UNVERIFIED),
        (InputsModifiedError("wrote"), Status.WRONG),
        (ImplementationError("raised"), Status.RUN_FAILURE),
        (caused(ImplementationError("raised"), CompilationError()), Status.COMPILE_FAILURE),
        (DeviceMemoryError("full"), Status.OUT_OF_MEMORY),
        (TimingError("clock"), Status.UNVERIFIED),
        (UnavailableError("no device"), Status.UNAVAILABLE),
        (UsageError("its own Model writes to its inputs"), Status.UNAVAILABLE),
        (ModelFileError("it raised"), Status.IMPORT_FAILURE),
        (caused(ModelFileError("it raised"), ModuleNotFoundError("triton")), Status.UNAVAILABLE),
        (ModelFileError("x.py:3: importing it raised OSError: CUDA_HOME is not set"), Status.UNAVAILABLE),
        (
            ModelFileError("importing it raised RuntimeError: Error building extension 'x'"),
            Status.COMPILE_FAILURE,
        ),
        (caused(ModelFileError("made"), MemoryError()), Status.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("full"), Status.OUT_OF_MEMORY),
        (ValueError("while it was timed"), Status.RUN_FAILURE),
        (SystemExit(0), Status.CRASH),
    ],
)
def test_an_error_has_the_status_of_its_cause(error: BaseException, status: Status) -> None:
    assert status_of(error) is status


def test_no_error_of_this_package_is_taken_for_a_verified_candidate() -> None:
    kinds = [CrashedError, *KernelmarkError.__subclasses__()]
    for kind in kinds:
        try:
            error = kind("x")
        except TypeError:  # one that takes more; none of a worker's
            continue
        assert status_of(error) is not Status.VERIFIED
