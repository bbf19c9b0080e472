from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import SuiteError, UsageError
from kernelmark.kernelbench.statuses import (
    Outcome,
    Status,
    read_expected,
    summary,
    worse_than,
    write_expected,
)

OUTCOMES = (
    Outcome("level1/1_a.py", "matmul", Status.VERIFIED),
    Outcome("level1/2_b.py", "matmul", Status.WRONG, "worst error 3"),
    Outcome("level1/3_c.py", "scan", Status.LOWER_FAILURE, "tm_tensor.scan"),
    Outcome("level1/4_d.py", "scan", Status.VERIFIED),
)


@pytest.mark.spec("L10", "L12")
def test_the_summary_counts_statuses_in_all_and_per_pipeline() -> None:
    assert summary(OUTCOMES) == (
        "4 kernels: 2 verified, 1 wrong, 1 lower failure",
        "  matmul: 1 verified, 1 wrong",
        "  scan: 1 verified, 1 lower failure",
    )


def test_what_is_kept_is_what_may_not_get_worse(tmp_path: Path) -> None:
    file = tmp_path / "expected.txt"
    write_expected(file, OUTCOMES)
    kept = read_expected(file)
    assert kept == {"level1/2_b.py": Status.WRONG, "level1/3_c.py": Status.LOWER_FAILURE}
    assert worse_than(kept, OUTCOMES) == ()
    better = [Outcome("level1/3_c.py", "scan", Status.VERIFIED)]
    assert worse_than(kept, better) == ()
    worse = [Outcome("level1/2_b.py", "matmul", Status.CRASH, "SIGSEGV")]
    assert worse_than(kept, worse) == ("level1/2_b.py: crash, expected wrong: SIGSEGV",)


def test_a_kernel_that_the_list_does_not_name_must_be_verified() -> None:
    assert worse_than({}, OUTCOMES[:2]) == ("level1/2_b.py: wrong, expected verified: worst error 3",)


@pytest.mark.parametrize("worse", list(Status)[1:])
def test_every_status_is_worse_than_verified(worse: Status) -> None:
    assert worse.rank > Status.VERIFIED.rank


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("level1/1_a.py: verifed", "did you mean 'verified'"),
        ("level1/1_a.py", "KERNEL: STATUS"),
        ("level1/1_a.py: wrong\nlevel1/1_a.py: wrong", "a second time"),
    ],
)
def test_a_malformed_line_is_told_with_its_number(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "expected.txt"
    file.write_text("# a comment\n\n" + text)
    with pytest.raises(SuiteError, match=words) as error:
        read_expected(file)
    assert error.value.line == 3 + text.count("\n")


def test_a_list_that_is_not_there_is_an_error_of_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_expected(tmp_path / "none.txt")
