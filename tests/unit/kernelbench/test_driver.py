"""The driver with real processes; what they run plays the command for one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.errors import SuiteError, UsageError
from kernelmark.kernelbench.driver import (
    DriverOptions,
    Ended,
    arguments_for,
    drive,
    outcome_of,
    read_outcomes,
)
from kernelmark.kernelbench.results import kernel_folder
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import Entry, Sizes, load_suite
from kernelmark.prefork import Finished, Limits, Prefork

HERE = Path(__file__).parent
STATUSES = {
    "fine": Status.VERIFIED,
    "wrong": Status.WRONG,
    "missing": Status.UNAVAILABLE,
    "import": Status.IMPORT_FAILURE,
    "lower": Status.LOWER_FAILURE,
    "compile": Status.COMPILE_FAILURE,
    "run": Status.RUN_FAILURE,
    "bug": Status.CRASH,
    "memory": Status.OUT_OF_MEMORY,
    "hang": Status.TIMEOUT,
    "crash": Status.CRASH,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Prefork]:
    with Prefork("driver_target:main", environment={"PYTHONPATH": str(HERE)}) as opened:
        yield opened


@pytest.fixture
def options(tmp_path: Path) -> DriverOptions:
    return DriverOptions(root=tmp_path / "tree", out=tmp_path / "out", limits=Limits(time_s=2))


def entries(tmp_path: Path, *names: str, more: str = "") -> tuple[Entry, ...]:
    text = ""
    for number, name in enumerate(names):
        file = tmp_path / "tree" / "level1" / f"{number}_{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        text += (
            f"- kernel: level1/{file.name}\n  input_shapes: [4x4]\n  output_shape: 4x4\n  pipeline: p\n{more}"
        )
    suite = tmp_path / "suite.yaml"
    suite.write_text(text)
    return load_suite(suite).entries


@pytest.mark.spec("L10", "L12")
def test_every_way_to_end_is_a_status_and_the_others_run(
    tmp_path: Path, options: DriverOptions, server: Prefork
) -> None:
    ends: list[Ended] = []
    outcomes = drive(entries(tmp_path, *STATUSES), options, server, on_end=ends.append)
    assert {o.kernel.split("_")[1].removesuffix(".py"): o.status for o in outcomes} == STATUSES
    assert [end.outcome for end in ends] == list(outcomes)
    messages = {o.status: o.message for o in outcomes}
    assert messages[Status.TIMEOUT] == "it did not end within 2 s"
    assert "aten.fft_rfft is not known" in messages[Status.IMPORT_FAILURE]
    assert messages[Status.WRONG] == "the output differs from the reference: worst 3"
    assert "asked" in ends[0].output


def test_a_file_that_is_not_there_is_one_row(tmp_path: Path, options: DriverOptions, server: Prefork) -> None:
    gone, there = entries(tmp_path, "fine", "fine")
    (options.root / gone.kernel).unlink()
    outcomes = drive((gone, there), options, server)
    assert [o.status for o in outcomes] == [Status.UNAVAILABLE, Status.VERIFIED]


def test_a_dtype_that_an_entry_does_not_have_is_one_row(
    tmp_path: Path, options: DriverOptions, server: Prefork
) -> None:
    only = entries(tmp_path, "fine", more="  dtypes: [f32]\n")
    (outcome,) = drive(only, replace(options, dtype="bf16"), server)
    assert outcome.status is Status.UNAVAILABLE
    assert "f32 only" in outcome.message


def test_a_run_is_taken_up_where_it_stopped(tmp_path: Path, options: DriverOptions, server: Prefork) -> None:
    both = entries(tmp_path, "fine", "wrong")
    first = drive(both[:1], options, server)
    with open(options.out / "outcomes.jsonl", "a") as stream:
        stream.write('{"kernel": "cut sho')
    kept = read_outcomes(options.out)
    assert kept == first
    again: list[Ended] = []
    outcomes = drive(both, options, server, on_end=again.append, done=kept)
    assert [end.entry for end in again] == [both[1]]
    assert [o.status for o in outcomes] == [Status.VERIFIED, Status.WRONG]


def test_several_jobs_give_the_same_in_the_suite_s_order(
    tmp_path: Path, options: DriverOptions, server: Prefork
) -> None:
    several = entries(tmp_path, "fine", "wrong", "lower", "fine")
    one = drive(several, options, server)
    other = drive(several, replace(options, jobs=3, out=tmp_path / "other"), server)
    assert [(o.kernel, o.status) for o in one] == [(o.kernel, o.status) for o in other]


@pytest.mark.parametrize(
    ("jobs", "benchmark", "handed"), [(2, True, True), (2, False, False), (1, True, False)]
)
def test_turns_are_handed_out_where_several_run_at_once_and_are_timed(
    tmp_path: Path, options: DriverOptions, server: Prefork, *, jobs: int, benchmark: bool, handed: bool
) -> None:
    ends: list[Ended] = []
    several = entries(tmp_path, "turn", "turn", "turn")
    outcomes = drive(several, replace(options, jobs=jobs, benchmark=benchmark), server, on_end=ends.append)
    assert {outcome.status for outcome in outcomes} == {Status.VERIFIED}
    assert all(f"turns are handed out: {handed}" in end.output for end in ends)


def test_records_of_an_earlier_run_give_way_to_those_of_the_next(
    tmp_path: Path, options: DriverOptions, server: Prefork
) -> None:
    (entry,) = entries(tmp_path, "fine")
    earlier = kernel_folder(options.out, entry.kernel) / "records.jsonl"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    drive((entry,), options, server)
    assert not earlier.exists()


@pytest.mark.spec("L2", "L5", "L6", "L9")
def test_the_command_line_says_the_entry_s_sizes(tmp_path: Path, options: DriverOptions) -> None:
    (entry,) = entries(
        tmp_path,
        "fine",
        more="  init_args: [64, '(3, 3)']\n  gflops: (2 * 3) / 1e9\n  tolerances: {atol: 0.1, rtol: 0}\n",
    )
    line = arguments_for(entry, replace(options, dtype="bf16", benchmark=True, extra=("--threads", "1")))
    assert line[0] == str(options.root / entry.kernel)
    text = " ".join(line)
    assert "--pipeline p --dtype bf16" in text
    assert "--input-shapes 4x4xbf16xrnd --init-args [64, (3, 3)]" in text
    assert "--benchmark --gflops (2 * 3) / 1e9" in text
    assert "--atol 0.1 --rtol 0.0" in text
    assert line[-2:] == ["--threads", "1"]
    assert "--device" not in line
    assert "--device cuda:0" in " ".join(arguments_for(entry, replace(options, device="cuda:0")))
    smoke = arguments_for(entry, replace(options, smoke=True, torch_compile=True, infer_shapes=True))
    assert "--pipeline loops" in " ".join(smoke)
    assert {"--torch-compile", "--infer-shapes"} <= set(smoke)
    assert "--input-shapes" not in smoke
    with pytest.raises(SuiteError, match="original"):
        arguments_for(entry, replace(options, sizes=Sizes.ORIGINAL))


def test_a_kill_from_outside_is_out_of_memory(tmp_path: Path) -> None:
    (entry,) = entries(tmp_path, "fine")
    found = outcome_of(entry, Finished(-9, timed_out=False, output="", errors="", wall_s=1.0), limit_s=5)
    assert found.status is Status.OUT_OF_MEMORY


def test_no_job_at_all_is_refused(options: DriverOptions) -> None:
    with pytest.raises(UsageError, match="--jobs 0"):
        replace(options, jobs=0)
