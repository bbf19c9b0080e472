"""What a run leaves in its folder is read back as it was written, also where it was cut short."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import RecordError, UsageError
from kernelmark.kernelbench.results import (
    HEADER,
    OUTCOMES,
    SuiteHeader,
    SuiteRun,
    begin,
    finish,
    kernel_folder,
    read_header,
    read_suite_run,
)
from kernelmark.kernelbench.statuses import Status
from tests.unit.kernelbench.made_up import Kernel

Make = Callable[..., SuiteRun]
OLD = Path(__file__).parents[2] / "data" / "suite_v1"
HEADING = SuiteHeader(run="later", started="2026-11-30T10:00:00+00:00", time_limit_s=60)


def test_kernels_come_back_by_number_with_their_records(make_suite_run: Make) -> None:
    run = make_suite_run(
        {
            "level1/10_b.py": Kernel(),
            "level1/9_a.py": Kernel(status=Status.CRASH, message="signal 11", ours_ns=None),
        }
    )
    assert [kernel.name for kernel in run.kernels] == ["level1/9_a", "level1/10_b"]
    assert run.kernels[0].stored is None
    assert run.kernels[1].stored is not None
    assert run.header.benchmark
    assert read_suite_run(run.folder).outcomes == run.outcomes


def test_a_run_of_the_first_format_is_read(tmp_path: Path) -> None:
    run = read_suite_run(OLD)  # made on 2026-12-01, and never again
    assert (run.header.format_version, run.header.benchmark, run.header.memory_limit_bytes) == (
        1,
        True,
        8 << 30,
    )
    assert [(each.name, each.outcome.status, each.outcome.pipeline) for each in run.kernels] == [
        ("level1/6_relu", Status.VERIFIED, "elementwise"),
        ("level1/13_argmax", Status.VERIFIED, "reduction"),
    ]
    stored = [each.stored for each in run.kernels]
    assert [[row.implementation for row in each.rows] for each in stored if each] == [
        ["mlir", "eager", "inductor"]
    ] * 2
    copied = tmp_path / "run"
    shutil.copytree(OLD, copied)
    kernels = ["level1/6_relu.py", "level1/13_argmax.py", "level1/12_sum.py"]
    begin(copied, HEADING.model_copy(update={"benchmark": True}), kernels, resume=True)
    again = read_suite_run(copied)
    assert (again.header.run, again.header.resumed) == (run.header.run, (HEADING.started,))
    assert again.outcomes == run.outcomes


def test_records_that_cannot_be_read_are_told_and_the_rest_is_there(make_suite_run: Make) -> None:
    run = make_suite_run({"level1/1_a.py": Kernel(), "level1/2_b.py": Kernel()})
    (kernel_folder(run.folder, "level1/1_a.py") / "records.jsonl").write_text("")
    again = read_suite_run(run.folder)
    assert "the first line must be a run's header" in again.kernels[0].unreadable
    assert again.kernels[1].stored is not None


def test_a_new_run_takes_the_place_of_the_earlier_one(make_suite_run: Make) -> None:
    run = make_suite_run({"level1/1_a.py": Kernel()})
    assert begin(run.folder, HEADING, ["level1/1_a.py"], resume=False) == ()
    assert not (run.folder / OUTCOMES).exists()
    assert read_header(run.folder) == HEADING


def test_one_that_is_taken_up_notes_when_and_keeps_how_it_began(make_suite_run: Make) -> None:
    run = make_suite_run({"level1/1_a.py": Kernel()}, benchmark=False)
    both = ["level1/1_a.py", "level1/2_b.py"]
    assert begin(run.folder, HEADING, both, resume=True) == run.outcomes
    header = read_header(run.folder)
    assert header is not None
    assert (header.run, header.resumed, header.ended) == ("run", (HEADING.started,), None)
    finish(run.folder, "2026-11-30T11:00:00+00:00")
    ended = read_header(run.folder)
    assert ended is not None
    assert ended.ended == "2026-11-30T11:00:00+00:00"
    # with nothing left to run, nothing is noted, and it must be asked for in the same way all the same
    begin(run.folder, HEADING, both[:1], resume=True)
    with pytest.raises(UsageError, match="--resume: the run in --out was made with dtype f32"):
        begin(run.folder, HEADING.model_copy(update={"dtype": "bf16"}), both[:1], resume=True)
    finish(run.folder, "2026-12-01T00:00:00+00:00")
    assert read_header(run.folder) == ended


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dtype": "bf16"}, "made with dtype f32, and this one asks for bf16"),
        ({"smoke": True}, "made with smoke False"),
        ({"extra": ("--threads", "1")}, "made with extra nothing, and this one asks for --threads 1"),
        ({"device": "cuda:0"}, "device cpu"),
    ],
)
def test_one_that_began_in_another_way_is_not_taken_up(
    make_suite_run: Make, given: dict[str, object], words: str
) -> None:
    run = make_suite_run({"level1/1_a.py": Kernel()}, benchmark=False)
    other = HEADING.model_copy(update=given)
    with pytest.raises(UsageError, match=words):
        begin(run.folder, other, ["level1/2_b.py"], resume=True)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"there is no run\.json"):
        read_suite_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ('{"format_version": 2}', "format 2, this program reads 1"),
        ('{"format_version": 1, "run": "x"}', "cannot be read"),
        ("[]", "format None"),
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / HEADER).write_text(text)
    with pytest.raises(RecordError, match=words):
        read_suite_run(tmp_path)
