"""What became of something: one value, and the words for it are tables that leave nothing out."""

from __future__ import annotations

import inspect

import pytest

from kernelmark import errors
from kernelmark.cli.exit_codes import ExitCode, exit_code_for, exit_code_of
from kernelmark.errors import (
    CrashedError,
    KernelmarkError,
    ModelLoweringError,
    OutOfBoundsError,
    RecordsLostError,
    ScheduleError,
    TimeLimitError,
    UsageError,
)
from kernelmark.kernelbench.statuses import Status
from kernelmark.records import Cause, Check, Fate, Note, Role, Row, Stage

ALL = [Fate(stage, cause, check) for stage in Stage for cause in (None, *Cause) for check in (None, *Check)]


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (None, Fate(Stage.TIME)),
        (UsageError("x"), Fate(Stage.ASKED, Cause.USAGE)),
        (ScheduleError("x", path="s.yaml", line=3), Fate(Stage.ASKED, Cause.USAGE)),
        (ModelLoweringError("x"), Fate(Stage.LOWER, Cause.REFUSED)),
        (OutOfBoundsError("x"), Fate(Stage.CHECK, Cause.WRONG, Check.FAILED)),
        (CrashedError("x"), Fate(Stage.RUN, Cause.DIED, Check.FAILED)),
        (TimeLimitError("x"), Fate(Stage.RUN, Cause.LIMIT, Check.FAILED)),
        (RecordsLostError("x"), Fate(Stage.TIME, Cause.DOUBT)),
        (MemoryError(), Fate(Stage.RUN, Cause.MEMORY)),
        (PermissionError(), Fate(Stage.ASKED, Cause.STORAGE)),
        (KeyboardInterrupt(), Fate(Stage.ASKED, Cause.INTERRUPTED)),
        (ZeroDivisionError(), Fate(Stage.ASKED, Cause.BUG)),
    ],
)
def test_an_error_means_what_its_nearest_class_means(error: BaseException | None, fate: Fate):
    assert Fate.of(error) == fate


def test_no_error_of_this_package_is_a_bug():
    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    causes = {each: Fate.of(each("x")).cause for each in kinds if issubclass(each, KernelmarkError)}
    assert causes
    assert Cause.BUG not in causes.values()


def test_every_fate_has_a_word_in_every_table():
    words = {fate: (exit_code_of(fate), Status.of(fate)) for fate in ALL}
    assert {code for code, _ in words.values()} == set(ExitCode)
    assert {status for _, status in words.values()} == set(Status)


@pytest.mark.parametrize(
    ("fate", "status", "code"),
    [
        (Fate(Stage.CHECK, check=Check.VERIFIED), Status.VERIFIED, ExitCode.OK),
        (Fate(Stage.TIME, check=Check.PARTIAL), Status.VERIFIED, ExitCode.OK),
        (Fate(Stage.TIME, check=Check.UNVERIFIED), Status.UNVERIFIED, ExitCode.OK),
        (Fate(Stage.TIME), Status.UNVERIFIED, ExitCode.OK),
        (Fate(Stage.COMPILE, Cause.LIMIT), Status.TIMEOUT, ExitCode.CRASHED),
        (Fate(Stage.COMPILE, Cause.REFUSED), Status.COMPILE_FAILURE, ExitCode.CRASHED),
        (Fate(Stage.RUN, Cause.RAISED), Status.RUN_FAILURE, ExitCode.FAILED),
        (Fate(Stage.TIME, Cause.DOUBT, Check.VERIFIED), Status.UNVERIFIED, ExitCode.FAILED),
        (Fate(Stage.ASKED, Cause.USAGE), Status.UNAVAILABLE, ExitCode.USAGE),
    ],
)
def test_a_status_and_an_exit_code_follow_from_it(fate: Fate, status: Status, code: ExitCode):
    assert (Status.of(fate), exit_code_of(fate)) == (status, code)


def test_nothing_is_verified_that_nothing_vouches_for():
    verified = [fate for fate in ALL if Status.of(fate) is Status.VERIFIED]
    assert all(fate.done and fate.check is not None and fate.check.comparable for fate in verified)


@pytest.mark.parametrize(
    ("check", "fate"),
    [
        (Check.VERIFIED, Fate(Stage.CHECK, None, Check.VERIFIED)),
        (Check.FAILED, Fate(Stage.CHECK, Cause.WRONG, Check.FAILED)),
        (Check.UNAVAILABLE, Fate(Stage.ASKED, Cause.UNAVAILABLE, Check.UNAVAILABLE)),
    ],
)
def test_a_row_tells_what_became_of_its_implementation(check: Check, fate: Fate):
    row = Row(case="c", implementation="i", role=Role.OURS, check=check, note=Note.free("why"))
    assert row.fate == fate


def test_a_wrong_argument_is_a_value_error_as_anywhere_in_python():
    with pytest.raises(ValueError, match="no such"):
        raise UsageError("no such option")
    assert exit_code_for(UsageError("x")) is ExitCode.USAGE
