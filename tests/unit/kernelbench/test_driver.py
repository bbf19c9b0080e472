"""The driver with real workers; what they run plays the run of one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.cli.model import parse_model_command
from kernelmark.errors import SuiteError, UsageError
from kernelmark.isolation import ForkServer, Limits, Turns, Worker
from kernelmark.kernelbench import driver
from kernelmark.kernelbench.driver import DriverOptions, KernelEnd, KernelPlan, drive, make_plan, words_for
from kernelmark.kernelbench.kernel import KernelAnswer
from kernelmark.kernelbench.results import kernel_folder, read_outcomes
from kernelmark.kernelbench.statuses import Outcome, Status
from kernelmark.kernelbench.suite import Entry, Sizes, load_suite
from kernelmark.models import ModelRequest

HERE = Path(__file__).parent
STATUSES = {
    "fine": Status.VERIFIED,
    "hollow": Status.UNVERIFIED,
    "wrong": Status.WRONG,
    "missing": Status.UNAVAILABLE,
    "usage": Status.UNAVAILABLE,
    "import": Status.IMPORT_FAILURE,
    "lower": Status.LOWER_FAILURE,
    "compile": Status.COMPILE_FAILURE,
    "run": Status.RUN_FAILURE,
    "bug": Status.CRASH,
    "memory": Status.OUT_OF_MEMORY,
    "doubt": Status.UNVERIFIED,
    "hang": Status.TIMEOUT,
    "crash": Status.CRASH,
    "killed": Status.OUT_OF_MEMORY,
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(("kernelmark.kernelbench.kernel",), environment={"PYTHONPATH": str(HERE)}) as opened:
        yield opened


def worker_of(server: ForkServer, options: DriverOptions, turns: Turns | None = None) -> Worker[KernelAnswer]:
    return Worker("driver_target:play", options.limits, start=server, answer=KernelAnswer, turns=turns)


def run(
    entries: Sequence[Entry],
    options: DriverOptions,
    server: ForkServer,
    *,
    ends: list[KernelEnd] | None = None,
    done: Sequence[Outcome] = (),
) -> tuple[Outcome, ...]:
    on_end = (ends if ends is not None else []).append
    with worker_of(server, options) as worker:
        return drive(plan(entries, options), options, worker, on_end=on_end, done=done)


def plan(entries: Sequence[Entry], options: DriverOptions) -> tuple[KernelPlan, ...]:
    return make_plan(entries, options, parse)


def parse(words: Sequence[str]) -> tuple[ModelRequest, frozenset[str]]:
    return parse_model_command(words, program="kernelmark kernelbench", also=["--suite"])


@pytest.fixture
def options(tmp_path: Path) -> DriverOptions:
    return DriverOptions(root=tmp_path / "tree", out=tmp_path / "out", limits=Limits(time_s=2))


def entries(tmp_path: Path, *names: str, more: str = "") -> tuple[Entry, ...]:
    text = ""
    for number, name in enumerate(names):
        file = tmp_path / "tree" / "level1" / f"{number}_{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        text += f"- kernel: level1/{file.name}\n  input_shapes: [4x4]\n  output_shape: 4x4\n  pipeline: loops\n{more}"
    suite = tmp_path / "suite.yaml"
    suite.write_text(text)
    return load_suite(suite).entries


@pytest.mark.spec("L10", "L12")
def test_every_way_to_end_is_a_status_and_the_others_run(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    ends: list[KernelEnd] = []
    outcomes = run(entries(tmp_path, *STATUSES), options, server, ends=ends)
    assert {o.kernel.split("_")[1].removesuffix(".py"): o.status for o in outcomes} == STATUSES
    assert [end.outcome for end in ends] == list(outcomes)
    messages = dict(zip(STATUSES, (outcome.message for outcome in outcomes), strict=True))
    assert messages["hang"] == "compile: it did not end within 2 s"
    assert "aten.fft_rfft is not known" in messages["import"]
    assert messages["wrong"] == "the output differs from the reference: worst 3"
    assert messages["hollow"] == "the check is vacuous"
    texts = dict(zip(STATUSES, ends, strict=True))
    assert "asked" in texts["fine"].output
    assert texts["wrong"].errors == "error: the output differs from the reference: worst 3\n"
    assert "Traceback" in texts["bug"].errors


def test_a_file_that_is_not_there_is_one_row(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    gone, there = entries(tmp_path, "fine", "fine")
    (options.root / gone.kernel).unlink()
    outcomes = run((gone, there), options, server)
    assert [o.status for o in outcomes] == [Status.UNAVAILABLE, Status.VERIFIED]


def test_a_dtype_that_an_entry_does_not_have_is_one_row(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    only = entries(tmp_path, "fine", more="  dtypes: [f32]\n")
    (outcome,) = run(only, replace(options, dtype="bf16"), server)
    assert outcome.status is Status.UNAVAILABLE
    assert "f32 only" in outcome.message


def test_a_run_is_taken_up_where_it_stopped(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    both = entries(tmp_path, "fine", "wrong")
    first = run(both[:1], options, server)
    with open(options.out / "outcomes.jsonl", "a") as stream:
        stream.write('{"kernel": "cut sho')
    kept = read_outcomes(options.out)
    assert kept == first
    again: list[KernelEnd] = []
    outcomes = run(both, options, server, ends=again, done=kept)
    assert [end.plan.entry for end in again] == [both[1]]
    assert [o.status for o in outcomes] == [Status.VERIFIED, Status.WRONG]


def test_several_jobs_give_the_same_in_the_suite_s_order(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    several = entries(tmp_path, "fine", "wrong", "lower", "fine")
    one = run(several, options, server)
    other = run(several, replace(options, jobs=3, out=tmp_path / "other"), server)
    assert [(o.kernel, o.status) for o in one] == [(o.kernel, o.status) for o in other]


def test_where_several_are_timed_the_others_are_held_and_it_is_said(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    ends: list[KernelEnd] = []
    options = replace(options, jobs=2, benchmark=True)
    with worker_of(server, options, Turns()) as worker:
        drive(plan(entries(tmp_path, "hang", "turn"), options), options, worker, on_end=ends.append)
    turn = next(end for end in ends if end.outcome.status is Status.VERIFIED)
    assert "were held while this was timed" in turn.output


def test_turns_are_handed_out_where_several_run_at_once_and_are_timed(options: DriverOptions) -> None:
    for jobs, benchmark, handed in ((2, True, True), (2, False, False), (1, True, False)):
        with driver.worker_for(replace(options, jobs=jobs, benchmark=benchmark)) as worker:
            assert (worker._turns is not None) is handed


def test_records_of_an_earlier_run_give_way_to_those_of_the_next(
    tmp_path: Path, options: DriverOptions, server: ForkServer
) -> None:
    (entry,) = entries(tmp_path, "fine")
    earlier = kernel_folder(options.out, entry.kernel) / "records.jsonl"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    run((entry,), options, server)
    assert not earlier.exists()


@pytest.mark.spec("L2", "L5", "L6", "L9")
def test_the_command_line_says_what_the_entry_says(tmp_path: Path, options: DriverOptions) -> None:
    (entry,) = entries(
        tmp_path,
        "fine",
        more="  init_args: [64, '(3, 3)']\n  gflops: (2 * 3) / 1e9\n  tolerances: {atol: 0.1, rtol: 0}\n",
    )
    line = words_for(entry, replace(options, dtype="bf16", benchmark=True, extra=("--threads", "1")))
    text = " ".join(line)
    file = options.root / entry.kernel
    assert text.startswith(f"{file} --pipeline loops --benchmark --dtype bf16 --input-shapes 4x4xbf16xrnd")
    assert "--output-shape 4x4xbf16x0 --init-args [64, (3, 3)] --gflops (2 * 3) / 1e9" in text
    assert "--atol 0.1 --rtol 0.0" in text
    assert line[-2:] == ("--threads", "1")
    assert "--device" not in line
    assert "--device cuda:0" in " ".join(words_for(entry, replace(options, device="cuda:0")))
    smoke = words_for(entry, replace(options, smoke=True, torch_compile=True, infer_shapes=True))
    assert "--pipeline loops" in " ".join(smoke)
    assert {"--torch-compile", "--infer-shapes"} <= set(smoke)
    assert not {"--input-shapes", "--output-shape", "--init-args"} & set(smoke)
    with pytest.raises(SuiteError, match="original"):
        words_for(entry, replace(options, sizes=Sizes.ORIGINAL))


@pytest.mark.spec("L2", "L7")
@pytest.mark.parametrize(
    ("extra", "gone"),
    [
        (("--pipeline", "elementwise"), {"--pipeline loops"}),
        (("--input-shapes", "2x2xf32"), {"--input-shapes 4x4"}),
        (("--output-shape", "2x2"), {"--output-shape 4x4"}),
        (("--tolerance", "1e-3"), {"--atol", "--rtol"}),
        (("--compiler", "inductor"), {"--pipeline loops"}),
        (("--gflops", "1", "--bytes", "8"), {"--gflops 9", "--bytes 7"}),
    ],
)
def test_an_option_that_is_handed_on_replaces_what_the_entry_says(
    tmp_path: Path, options: DriverOptions, extra: tuple[str, ...], gone: set[str]
) -> None:
    listed = entries(tmp_path, "fine", more="  tolerances: {atol: 1, rtol: 0}\n  gflops: 9\n  bytes: 7\n")
    (made,) = plan(listed, replace(options, benchmark=True, extra=extra))
    text = " ".join(made.words)
    assert not [each for each in gone if each in text]
    assert text.endswith(" ".join(extra))
    assert made.request is not None
    if extra[0] == "--pipeline":
        assert made.request.pipeline == ("elementwise",)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--no-such-option",), "--no-such-option: there is no such option"),
        (("--suit", "own"), "did you mean --suite"),
        (("--cahce=warm",), "did you mean --cache"),
        (("--baselines", "foo"), "'foo' is none"),
        (("--iterations", "x"), "'x' is not a valid integer"),
        (("--list-schedules",), "--list-schedules shows something and runs nothing"),
        (("--explain-schedule",), "--explain-schedule shows something and runs nothing"),
        (("--seed", "99999999999999999999"), "--seed 99999999999999999999"),
    ],
)
def test_what_no_kernel_could_be_run_with_is_told_before_the_first(
    tmp_path: Path, options: DriverOptions, extra: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        plan(entries(tmp_path, "fine"), replace(options, extra=extra))


def test_what_nothing_obeys_on_a_gpu_is_refused(tmp_path: Path, options: DriverOptions) -> None:
    listed = entries(tmp_path, "fine")
    (made,) = plan(listed, replace(options, device="cuda:0"))
    assert "--pipeline" not in made.words
    with pytest.raises(UsageError, match="--torch-compile with --device cuda:0"):
        plan(listed, replace(options, device="cuda:0", torch_compile=True))
    with pytest.raises(UsageError, match="--pipeline with --device cuda:0"):
        plan(listed, replace(options, device="cuda:0", extra=("--pipeline", "loops")))
    with pytest.raises(UsageError, match="--smoke-test with --device cuda:0"):
        replace(options, device="cuda:0", smoke=True)


def test_a_pipeline_that_there_is_none_of_is_told_with_its_line(
    tmp_path: Path, options: DriverOptions
) -> None:
    entries(tmp_path, "fine")
    suite = tmp_path / "suite.yaml"
    suite.write_text(suite.read_text().replace("loops", "lops"))
    with pytest.raises(SuiteError, match=r"suite\.yaml:1.*'lops': there is none; did you mean 'loops'"):
        plan(load_suite(suite).entries, options)


def test_no_job_at_all_is_refused(options: DriverOptions) -> None:
    with pytest.raises(UsageError, match="--jobs 0"):
        replace(options, jobs=0)
