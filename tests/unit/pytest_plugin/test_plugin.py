"""The plugin as a user runs it: pytest in a process of its own, on a library of its own."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.records import Check, read_run
from kernelmark.report.notes import note_text
from tests.forked import run_afresh, run_forked

TOY = Path(__file__).parents[2] / "data" / "toy_library"

QUICK = (
    "--kernelmark-cache=warm",
    "--kernelmark-sample-ms=0.01",
    "--kernelmark-blocks=2",
    "--kernelmark-device=cpu",
)

SETTINGS = {"KERNELMARK_PROFILES": str(TOY.parent / "profiles"), "COLUMNS": "120"}

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the toy library, to add benchmarks to."""
    root = tmp_path / "library"
    shutil.copytree(TOY, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def run(library: Path, tmp_path: Path) -> Run:
    """Run pytest in the library; the run is kept in ``tmp_path/out``."""

    def go(
        *arguments: str, quick: bool = True, start: Start = run_forked, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        # hypothesis, which no library of a user's has to do with, would be loaded for 0.4 s
        words = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-c", "pyproject.toml", *arguments]
        if quick:
            words += [*QUICK, f"--kernelmark-out={tmp_path / 'out'}"]
        environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(library)}
        return start("pytest", *words, cwd=library, env=environment, **options)

    return go


def bench(library: Path, body: str, name: str = "bench_extra.py") -> str:
    """Write a benchmark of ``AddOp`` whose comparison is ``body``; gives its path."""
    path = library / "benches" / name
    path.write_text(
        "import time\nimport pytest\nimport torch\nfrom toy_ops import AddOp\nimport kernelmark as bench\n\n\n"
        "@pytest.mark.parametrize('case', bench.cases(AddOp), ids=lambda case: case.id)\n"
        "def test_extra(case):\n"
        f"    bench.Runner(AddOp(), case).compare({body})\n"
    )
    return f"benches/{name}"


@pytest.mark.spec("T2", "T36")
def test_a_benchmark_file_gives_a_table_a_record_and_reports(run: Run, tmp_path: Path) -> None:
    done = run("benches/bench_scale.py", f"--junit-xml={tmp_path / 'junit.xml'}", start=run_afresh)
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    stored = read_run(out)
    assert [(r.case, r.implementation) for r in stored.rows][:3] == [
        ("ScaleOp-small-float32", "toy"),
        ("ScaleOp-small-float32", "torch"),
        ("ScaleOp-small-float64", "toy"),
    ]
    assert stored.end is not None
    assert stored.end.outcome == "completed"
    assert f"{out / 'report.md'}" in done.stdout
    assert "ScaleOp-wide-float32" in done.stdout
    assert {p.name for p in out.iterdir()} == {"records.jsonl", "report.md", "report.json", "report.csv"}
    properties = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase/properties/property")
    assert any("ratio" in (p.get("name") or "") for p in properties)
    assert re.search(r"^ScaleOp-small-float32: toy", done.stdout, re.MULTILINE)


@pytest.mark.spec("T27")
@pytest.mark.parametrize("option", ["--tileops-verify", "--kernelmark-verify"])
def test_verifying_times_nothing_and_prints_each_error_against_its_tolerance(
    run: Run, tmp_path: Path, option: str
) -> None:
    done = run("benches/bench_scale.py", option, "-k", "AddOp or add")
    assert done.returncode == 0, done.stdout
    rows = read_run(tmp_path / "out").rows
    assert rows
    assert all(r.timing is None for r in rows)
    assert "rtol" in done.stdout
    assert "checks only" in done.stdout


@pytest.mark.spec("T27")
def test_verifying_fails_the_test_of_a_wrong_implementation(run: Run, library: Path, tmp_path: Path) -> None:
    done = run(bench(library, "{'bad': lambda x, y: x}"), "--tileops-verify")
    assert done.returncode == 1
    assert "bad does not match the reference" in done.stdout
    assert [r.check for r in read_run(tmp_path / "out").rows] == [Check.VERIFIED, Check.FAILED]


@pytest.mark.spec("T1", "T3")
def test_collecting_opens_no_device_and_an_op_without_an_entry_fails_there(
    run: Run, library: Path, tmp_path: Path
) -> None:
    done = run("benches/bench_scale.py", "--collect-only", "-q", "--kernelmark-device=cuda:7")
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "out").exists()
    path = bench(library, "{}")
    source = (library / path).read_text().replace("AddOp", "LonelyOp")
    (library / path).write_text(source)
    done = run(path, "--collect-only")
    assert done.returncode == 2
    assert "LonelyOp has no entry in toy_cases" in done.stdout


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--kernelmark-device=cuda:7", "cuda:7"),
        ("--kernelmark-device=gpu?", "'gpu?' is no device"),
        ("--kernelmark-timer=hots", "there is no timer 'hots'"),
        ("--kernelmark-timer=cupti", "the timer 'cupti' serves"),
        ("--kernelmark-blocks=0", "blocks"),
        ("--kernelmark-out={held}", "already holds a run; choose another output folder"),
    ],
)
def test_an_option_that_no_case_could_be_run_with_is_one_error_before_the_first_case(
    run: Run, tmp_path: Path, option: str, told: str
) -> None:
    held = tmp_path / "held"
    held.mkdir()
    (held / "records.jsonl").write_text("")
    given = option.format(held=held)
    quick = [each for each in QUICK if each.partition("=")[0] != given.partition("=")[0]]
    done = run("benches/bench_scale.py", *quick, given, quick=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert done.stderr.startswith("ERROR: ")
    assert done.stderr.count(told) == 1
    assert "failed" not in done.stdout


def test_a_run_without_cases_does_not_mind_wrong_options(run: Run, library: Path) -> None:
    (library / "benches" / "test_plain.py").write_text("def test_nothing():\n    pass\n")
    assert run("benches/test_plain.py", "--kernelmark-device=cuda:7", quick=False).returncode == 0


@pytest.mark.spec("T14")
def test_baselines_can_be_required(run: Run, library: Path, tmp_path: Path) -> None:
    path = bench(library, "{'gone': bench.Unavailable('no such library'), 'torch': case.reference}")
    assert run(path).returncode == 0
    shutil.rmtree(tmp_path / "out")
    done = run(path, "--require-baselines")
    assert done.returncode == 1
    assert "gone (no such library)" in done.stdout
    assert len(read_run(tmp_path / "out").rows) == 3


BAD = {
    "raises": ("1 / 0", "raises raised ZeroDivisionError"),
    "nothing": ("None", "None"),
    "shape": ("(x + y)[:3]", "shape"),
    "dtype": ("(x + y).double()", "float64"),
    "writes": ("x.add_(y)", "writes wrote to the inputs"),
    "memory": ("torch.empty(2**60)", "memory ran out of memory"),
}
"""What is wrong with an implementation: what it gives, and what is said of it."""


def test_a_bad_implementation_is_a_failed_row_and_the_other_tests_go_on(
    run: Run, library: Path, tmp_path: Path
) -> None:
    files = [
        bench(library, f"{{'{name}': lambda x, y: {given}}}", f"bench_{name}.py")
        for name, (given, _) in BAD.items()
    ]
    done = run(*files, "benches/bench_scale.py")
    assert done.returncode == 1
    stored = read_run(tmp_path / "out")
    for name, (_, words) in BAD.items():
        (row,) = (row for row in stored.rows if row.implementation == name)
        assert row.check is Check.FAILED
        assert words in note_text(row.note), name
        assert words in done.stdout
    assert len(stored.rows) == 8 + 2 * len(BAD)
    assert stored.end is not None
    assert stored.end.outcome == "failed"


@pytest.mark.spec("T6")
def test_a_cases_data_is_released_when_its_test_ends_also_when_it_fails(run: Run, library: Path) -> None:
    path = library / "benches" / "bench_release.py"
    path.write_text(
        "import gc, weakref\nimport pytest\nfrom toy_ops import AddOp\nimport kernelmark as bench\n\n"
        "CASES = bench.cases(AddOp)\nSEEN = []\n\n\n"
        "@pytest.mark.parametrize('case', CASES)\n"
        "def test_fails(case):\n    SEEN.append(weakref.ref(case.inputs[0]))\n    assert False\n\n\n"
        "def test_after():\n    gc.collect()\n    assert not CASES[0]._made\n"
    )
    done = run("benches/bench_release.py")
    assert "1 failed, 1 passed" in done.stdout, done.stdout


def test_timing_under_xdist_is_refused_and_verifying_is_not(run: Run) -> None:
    pytest.importorskip("xdist")
    done = run("benches/bench_scale.py", "-n", "2", start=run_afresh)
    assert done.returncode != 0
    assert "cannot time under pytest-xdist" in done.stdout + done.stderr


def test_workers_of_xdist_that_check_make_one_run(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    done = run(
        "benches/bench_scale.py", "-n", "2", "--kernelmark-verify", f"--junit-xml={tmp_path / 'junit.xml'}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    stored = read_run(tmp_path / "out")
    assert sorted({row.case for row in stored.rows}) == [
        "AddOp-small-float32",
        "ScaleOp-small-float32",
        "ScaleOp-small-float64",
        "ScaleOp-wide-float32",
    ]
    assert len(stored.rows) == 8
    assert stored.end is not None
    assert (stored.end.outcome, stored.end.rows) == ("completed", 8)
    assert f"{tmp_path / 'out' / 'report.md'}" in done.stdout
    assert not (tmp_path / "library" / "runs").exists()
    again = run("benches/bench_scale.py", "-n", "2", "--kernelmark-verify")
    assert again.returncode == pytest.ExitCode.USAGE_ERROR
    assert (again.stdout + again.stderr).count("already holds a run") == 1


def test_a_comparison_in_a_plain_test_joins_the_run_and_takes_its_options(
    run: Run, library: Path, tmp_path: Path
) -> None:
    (library / "benches" / "bench_sizes.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.parametrize('n', [64, 128])\n"
        "def test_sizes(n):\n"
        "    import kernelmark\n"
        "    import torch\n\n"
        "    x = torch.rand(n)\n"
        "    ours = {'mine': lambda x: x + x, 'torch': lambda x: 2 * x}\n"
        "    kernelmark.compare(ours, inputs=(x,), reference=lambda x: 2 * x, label=f'n={n}')\n"
    )
    done = run("benches/bench_sizes.py")
    assert done.returncode == 0, done.stdout + done.stderr
    stored = read_run(tmp_path / "out")
    assert [(row.case, row.implementation) for row in stored.rows] == [
        ("n=64", "mine"),
        ("n=64", "torch"),
        ("n=128", "mine"),
        ("n=128", "torch"),
    ]
    assert {row.timing.cache.value for row in stored.rows if row.timing} == {"warm"}
    assert re.search(r"^n=64: mine", done.stdout, re.MULTILINE)
    assert f"{tmp_path / 'out' / 'report.md'}" in done.stdout
    shutil.rmtree(tmp_path / "out")
    done = run("benches/bench_sizes.py", "--kernelmark-verify")
    assert done.returncode == 0, done.stdout
    assert all(row.timing is None for row in read_run(tmp_path / "out").rows)


def test_an_output_folder_that_cannot_be_written_is_told_before_anything_runs(
    run: Run, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run("benches/bench_scale.py", *QUICK, f"--kernelmark-out={blocked / 'out'}", quick=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "cannot make the folder" in done.stderr


def test_a_full_disk_stops_the_rows_and_keeps_those_before(run: Run, tmp_path: Path) -> None:
    """The limit on file size stands for the disk: the write fails in the same place."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    done = run("benches/bench_scale.py", start=run_afresh, preexec_fn=limit)
    assert done.returncode == 1
    assert "earlier rows are intact" in done.stdout
    stored = read_run(tmp_path / "out")
    assert 0 < len(stored.rows) < 8


def test_interrupting_a_run_keeps_every_row_made_before_and_says_so(library: Path, tmp_path: Path) -> None:
    bench(library, "{'slow': lambda x, y: time.sleep(60)}", "bench_slow.py")
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(library)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    command += [
        "benches/bench_scale.py",
        "benches/bench_slow.py",
        *QUICK,
        f"--kernelmark-out={tmp_path / 'out'}",
    ]
    with subprocess.Popen(
        command, cwd=library, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        records = tmp_path / "out" / "records.jsonl"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and (not records.exists() or records.read_text().count("\n") < 9):
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    stored = read_run(tmp_path / "out")
    assert len(stored.rows) == 8
    assert stored.end is not None
    assert stored.end.outcome == "interrupted"
    assert "report.md" in output


def test_a_run_without_cases_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\n\ndef test_nothing_heavy():\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "kernelmark" not in done.stdout
    assert not (tmp_path / "runs").exists()


def test_collecting_a_thousand_cases_takes_no_torch_work(run: Run, library: Path) -> None:
    """The time is measured by ``scripts``; here only that it works and stays a single manifest read."""
    rows = "".join(
        f"      - {{label: case-{i}, source: made, dims: {{N: {i + 1}}}, dtypes: [{{T: float32}}]}}\n"
        for i in range(1000)
    )
    manifest = library / "manifest" / "scale.yaml"
    text = manifest.read_text()
    head, tail = text.split("  AddOp:")[0], text.split("  AddOp:")[1]
    add, lonely = tail.split("  LonelyOp:")
    add = add[: add.index("      - label")] + rows
    manifest.write_text(f"{head}  AddOp:{add}  LonelyOp:{lonely}")
    done = run("benches/bench_scale.py", "--collect-only", "-q")
    assert "1003 tests collected" in done.stdout, done.stdout[-2000:]


# --- a run in parts ------------------------------------------------------------------------------------


def _cases(folder: Path) -> list[str]:
    return list(dict.fromkeys(row.case for row in read_run(folder).rows))


def test_a_run_that_was_cut_short_is_gone_on_with_and_keeps_what_it_has(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("benches/bench_scale.py").returncode == 0
    whole, file = read_run(out), out / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    # as after kill -9 in the fourth case: two whole ones, one whose rows may not all be there, half a line
    file.write_bytes(b"".join(lines[:6]) + lines[6][:40])
    done = run("benches/bench_scale.py", *QUICK, f"--kernelmark-resume={out}", quick=False)
    assert done.returncode == 0, done.stdout + done.stderr
    again = read_run(out)
    assert [(row.case, row.implementation) for row in again.rows] == [
        (row.case, row.implementation) for row in whole.rows
    ]
    assert again.rows[:4] == whole.rows[:4]
    assert all(one.timing != other.timing for one, other in zip(again.rows[4:], whole.rows[4:], strict=True))
    assert again.end is not None
    assert (again.end.outcome, again.end.rows) == ("completed", 8)
    assert again.header.run == whole.header.run
    assert "gone on with at" in note_text(again.header.notes[-1])
    assert "gone on with at" in (out / "report.md").read_text()


def test_what_failed_is_measured_again_and_nothing_else(run: Run, library: Path, tmp_path: Path) -> None:
    wrong = bench(library, "{'other': lambda x, y: x}")
    assert run("benches/bench_scale.py", wrong, "-k", "wide or extra").returncode == 1
    before = read_run(tmp_path / "out").rows
    (library / wrong).write_text(
        (library / wrong).read_text().replace("lambda x, y: x", "lambda x, y: x + y")
    )
    resume = (*QUICK, f"--kernelmark-resume={tmp_path / 'out'}")
    done = run("benches/bench_scale.py", wrong, "-k", "wide or extra", *resume, quick=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_run(tmp_path / "out").rows
    assert rows[:2] == before[:2]
    assert [(row.case, row.check) for row in rows[2:]] == [("AddOp-small-float32", Check.VERIFIED)] * 2


def test_a_run_that_was_made_otherwise_is_not_gone_on_with(run: Run, library: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("benches/bench_scale.py", "-k", "wide").returncode == 0
    before = (out / "records.jsonl").read_bytes()
    words = ("benches/bench_scale.py", "-k", "wide", f"--kernelmark-resume={out}")
    done = run(*words, "--kernelmark-device=cpu", quick=False)
    assert done.returncode == 4
    assert "ERROR: these runs are not alike and are not compared: protocol.cache is" in done.stderr
    done = run(*words, quick=True)
    assert done.returncode == 4
    assert "--kernelmark-out starts a run, and --kernelmark-resume goes on with one" in done.stderr
    assert (
        "ask for what it was made with, or start another run"
        in run(*words, "--kernelmark-device=cpu", quick=False).stderr
    )
    pytest.importorskip("xdist")
    done = run(*words, *QUICK, "-n", "2", "--kernelmark-verify", quick=False, start=run_afresh)
    assert done.returncode != 0
    assert "--kernelmark-resume" in done.stderr
    assert "under pytest-xdist: its workers do not know what the run has" in done.stderr
    assert (out / "records.jsonl").read_bytes() == before
    more = bench(library, "{'one': case.reference}").replace("AddOp", "ScaleOp")
    source = (
        (library / more)
        .read_text()
        .replace("AddOp()", "ScaleOp(**case.arguments)")
        .replace("AddOp", "ScaleOp")
    )
    (library / more).write_text(source)
    done = run(more, "-k", "wide", *QUICK, f"--kernelmark-resume={out}", quick=False)
    assert done.returncode == 1
    assert "the run that is gone on with compared toy, torch, and this compares toy, one" in done.stdout


def test_shards_hold_every_case_once_and_make_one_run(run: Run, tmp_path: Path) -> None:
    for part in (1, 2, 3):
        words = (*QUICK, f"--kernelmark-out={tmp_path / str(part)}", f"--kernelmark-shard={part}/3")
        done = run("benches/bench_scale.py", *words, quick=False)
        assert done.returncode == 0, done.stdout + done.stderr
    parts = [_cases(tmp_path / str(part)) for part in (1, 2, 3)]
    assert [len(each) for each in parts] == [2, 1, 1]
    done = run_forked(
        "kernelmark", "merge", *(str(tmp_path / part) for part in "123"), "--out", str(tmp_path / "all")
    )
    assert done.returncode == 0, done.stderr
    merged = read_run(tmp_path / "all")
    assert _cases(tmp_path / "all") == [*parts[0], *parts[1], *parts[2]]
    assert len(set(_cases(tmp_path / "all"))) == 4
    assert merged.end is not None
    assert (merged.end.outcome, merged.end.rows, len(merged.rows)) == ("completed", 8, 8)
    assert done.stdout.splitlines()[0] == f"md: {tmp_path / 'all' / 'report.md'}"
    assert "put together from the runs" in (tmp_path / "all" / "report.md").read_text()
    twice = run_forked(
        "kernelmark", "merge", *(str(tmp_path / part) for part in "11"), "--out", str(tmp_path / "no")
    )
    assert twice.returncode == 2
    assert "both hold ScaleOp-small-float32; leave one of them out" in twice.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("asked", ["0/3", "4/3", "2", "a/b", "1/0"])
def test_a_shard_that_is_none_is_one_error(run: Run, asked: str) -> None:
    done = run("benches/bench_scale.py", f"--kernelmark-shard={asked}")
    assert done.returncode == 4
    assert f"--kernelmark-shard {asked}: give a part and how many there are, such as 2/3" in done.stderr
