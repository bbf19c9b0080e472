"""``kernelmark ops`` as a user runs it, on a small library of its own."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelmark.cli import main
from kernelmark.errors import UsageError
from kernelmark.records import (
    FORMAT_VERSION,
    Cache,
    Check,
    DeviceRecord,
    Environment,
    Protocol,
    Role,
    Row,
    RunHeader,
    RunWriter,
    Statistics,
    Timing,
)

MANIFEST = """\
family: scaling
ops:
  ScaleOp:
    summary: Every element times a number.
    dtypes: {T: [float16, float32]}
    inputs:
      x: {dtype: T, shape: [M, N]}
      offset: {dtype: T, shape: [N], optional: true}
    outputs:
      y: {dtype: T, shape: [M, N]}
    params:
      factor: {type: float, default: 2.0}
    effects: {mutates: [x], aliases: {y: x}}
    arguments: {dtype: T, factor: factor}
    roofline: {flops: "M*N", bytes: "2*M*N*sizeof(T)", compute: T}
    workloads:
      - label: small
        source: "A test, 2 rows"
        dims: {M: 2, N: 3}
        dtypes: [{T: float16}, {T: float32}]
        with: [offset]
      - label: wide
        source: "A test, 4 rows"
        dims: {M: 4, N: 5000}
        dtypes: [{T: float32}]
        params: {factor: 0.5}
"""
OPS = """\
class ScaleOp:
    def __init__(self, dtype, factor):
        self.factor = factor

    def __call__(self, x, offset=None):
        return x.mul_(self.factor)
"""
CASES = """\
import torch

from kernelmark.harness.library import Entry
from kernelmark.verify import Exact


class Workload:
    def __init__(self, call):
        self.call = call

    def gen_inputs(self):
        specs = [self.call.tensors.get(name) for name in self.call.signature]
        return tuple(s and torch.ones(s.shape, dtype=getattr(torch, s.dtype)) for s in specs)

    def verification(self):
        return Exact()

    def reference(self, x, offset):
        return x * 2 if offset is None else x * 2 + offset


ENTRIES = {"ScaleOp": Entry(Workload)}
"""
BENCH = """\
import kernelmark as bench
from LIBRARY import ScaleOp

CASES = bench.cases(ScaleOp)


def test_scale(case):
    bench.Runner(ScaleOp(**case.arguments), case).compare({})
"""

Run = Callable[..., Result]
_names = (f"lib_of_test_{number}" for number in itertools.count())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """Give a whole project, whose modules have names that no other test has imported."""
    library = next(_names)
    (tmp_path / "manifest").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "manifest" / "scaling.yaml").write_text(MANIFEST)
    (tmp_path / f"{library}.py").write_text(OPS)
    (tmp_path / f"{library}_cases.py").write_text(CASES)
    (tmp_path / "benchmarks" / "bench_scale.py").write_text(BENCH.replace("LIBRARY", library))
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.kernelmark]\nname = "mine"\nmanifest = "manifest"\nops = "{library}"\n'
        f'cases = "{library}_cases"\nbenchmarks = "benchmarks"\n'
    )
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


@pytest.fixture
def run(project: Path) -> Run:
    """Run ``kernelmark ops ...`` on the project."""

    def run(*arguments: str) -> Result:
        command, *rest = arguments
        return CliRunner().invoke(main, ["ops", command, "--project", str(project), *rest])

    return run


def _ops_file(project: Path) -> Path:
    return next(path for path in project.glob("lib_of_test_*.py") if not path.stem.endswith("cases"))


def test_list_names_family_op_calls_and_dtypes(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["family", "op", "calls", "dtypes"],
        ["scaling", "ScaleOp", "3", "T:", "float16,", "float32"],
    ]


def test_list_as_json_can_be_read_by_a_program(run: Run, project: Path) -> None:
    (op,) = json.loads(run("list", "--json").stdout)
    assert op == {
        "op": "ScaleOp",
        "family": "scaling",
        "summary": "Every element times a number.",
        "file": str(project / "manifest" / "scaling.yaml"),
        "line": 3,
        "calls": 3,
        "dtypes": {"T": ["float16", "float32"]},
    }


def test_show_tells_the_signature_the_effects_and_every_call_with_its_work(run: Run) -> None:
    result = run("show", "ScaleOp")
    assert result.exit_code == 0
    for line in (
        "ScaleOp (scaling)",
        "Every element times a number.",
        "dtypes    T: float16, float32",
        "inputs    x: T[M, N]",
        "inputs    offset: T[N], optional",
        "outputs   y: T[M, N]",
        "params    factor: float, default 2.0",
        "arguments dtype = T; factor = factor",
        "effects   mutates = x; aliases = y of x",
        "roofline  flops = M*N; bytes = 2*M*N*sizeof(T); compute = T",
        "ScaleOp-small-float16",
        "  inputs  x float16[2, 3]; offset float16[3]",
        "ScaleOp-wide-float32",
        "  source  A test, 4 rows",
        "  inputs  x float32[4, 5000]; offset not given",
        "  outputs y float32[4, 5000]",
        "  params  factor = 0.5",
        "  work    20,000 operations in float32, 160,000 bytes",
    ):
        assert line in result.stdout.splitlines()


def test_show_as_json_holds_the_same(run: Run) -> None:
    shown = json.loads(run("show", "ScaleOp", "--json").stdout)
    assert shown["signature"]["effects"] == {"mutates": ["x"], "writes": [], "aliases": {"y": "x"}}
    assert shown["signature"]["inputs"][1] == {
        "name": "offset",
        "dtype": "T",
        "shape": ["N"],
        "optional": True,
    }
    last = shown["calls"][-1]
    assert (last["id"], last["inputs"]["offset"], last["flops"]) == ("ScaleOp-wide-float32", None, 20000)


def test_show_of_an_unknown_op_lists_near_names(run: Run) -> None:
    result = run("show", "ScaleOpp")
    assert result.exit_code == 2
    assert "no op 'ScaleOpp' in this manifest; did you mean 'ScaleOp'?" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.spec("T38")
def test_validate_runs_every_level_and_says_how_much_each_checked(run: Run) -> None:
    result = run("validate")
    assert result.exit_code == 0, result.output
    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()] == [
        ["schema", "ok", "files: 1"],
        ["signature", "ok", "ops: 1"],
        ["workload", "ok", "calls: 3"],
        ["shape", "ok", "calls: 3"],
        ["dtype", "ok", "calls: 3"],
        ["bench", "ok", "files: 1"],
    ]


def _cases_file(project: Path) -> Path:
    return next(project.glob("lib_of_test_*_cases.py"))


def _spoil_ops(project: Path) -> None:
    _ops_file(project).write_text(OPS.replace("x, offset=None", "offset, x"))


def _spoil_cases(project: Path, old: str, new: str) -> None:
    assert old in CASES
    _cases_file(project).write_text(CASES.replace(old, new))


def _spoil_bench(project: Path) -> None:
    file = project / "benchmarks" / "bench_scale.py"
    file.write_text(file.read_text().replace("bench.Runner", "print"))


@pytest.mark.parametrize(
    ("level", "spoil", "message"),
    [
        ("signature", _spoil_ops, "ScaleOp.__call__ takes (offset, x), the manifest says (x, offset)"),
        (
            "shape",
            lambda p: _spoil_cases(p, "x * 2 if", "x[0] if"),
            "output 'y' is [4, 5000] here, [5000] from",
        ),
        (
            "dtype",
            lambda p: _spoil_cases(p, "+ offset", "+ offset.double()"),
            "output 'y' is float16 here, float64",
        ),
        ("bench", _spoil_bench, "benchmarks/bench_scale.py:1: never calls bench.Runner"),
    ],
)
def test_what_a_level_finds_is_an_exit_code_of_one_with_the_place(
    run: Run, project: Path, level: str, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(project)
    result = run("validate", "--level", level)
    assert result.exit_code == 1, result.output
    assert message in result.stdout
    assert f"{level:<10} " in result.stdout
    others = {"signature", "workload", "shape", "dtype", "bench"} - {level}
    assert not any(line.startswith(tuple(others)) for line in result.stdout.splitlines())


def test_what_could_not_be_checked_is_a_visible_note_and_no_failure(run: Run, project: Path) -> None:
    _spoil_cases(project, "x * 2 if", "x * float(x.sum()) if")
    result = run("validate", "--level", "shape", "--level", "dtype")
    assert result.exit_code == 0
    assert "shape      ok          calls: 2, notes: 1" in result.stdout
    assert "ScaleOp-wide-float32: note: outputs not checked: the reference does not run" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('ENTRIES = {"ScaleOp": Entry(Workload)}', "ENTRIES = {}", "ScaleOp has no entry in lib_of_test_"),
        ("self.call = call", "self.rows = call.dims['R']", "_cases.py:9: the entry raised KeyError: 'R'"),
        (
            "def verification",
            "def verify",
            "_cases.py:7: the entry built Workload, which has no verification()",
        ),
        (
            "return Exact()",
            "return 0.01",
            "_cases.py:7: verification() is 0.01; it must be one of Exact,",
        ),
        ("return Exact()", "return self.tolerance", "_cases.py:16: verification() raised AttributeError"),
        (
            "torch, s.dtype",
            "torch, 'float64'",
            "gen_inputs() gives x as float64[2, 3]; the manifest says float16",
        ),
        ("def reference(self", "def model(self", "the reference is None; give the workload a reference"),
    ],
)
def test_a_library_whose_cases_cannot_run_is_not_ok(
    run: Run, project: Path, old: str, new: str, message: str
) -> None:
    _spoil_cases(project, old, new)
    result = run("validate")
    assert result.exit_code == 1, result.output
    assert message in result.stdout
    workload, shape = (line for line in result.stdout.splitlines() if line.startswith(("workload", "shape")))
    assert "errors: " in workload
    assert "calls: 0" not in shape or "not checked" in shape


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    dtypes: {T", "\tdtypes: {T", "scaling.yaml:5: a tab in the indentation"),
        ("    summary:", "    effects: {}\n    summary:", "duplicate key 'effects', first on line 4"),
        ("    summary:", "    sumary:", "unknown field 'sumary'; did you mean 'summary'?"),
        ("{M: 4, N: 5000}", "{M: 4, N: many}", "dims.N: expected an int, got text 'many'"),
        ('source: "A test, 4 rows"', "source: &a [*a]", "an alias to the collection that it stands in"),
        ("label: wide", "label: small", "label 'small' is taken by the row on line 17"),
    ],
)
def test_a_malformed_manifest_is_an_exit_code_of_two_with_file_and_line_on_stderr(
    run: Run, project: Path, old: str, new: str, message: str
) -> None:
    (project / "manifest" / "scaling.yaml").write_text(MANIFEST.replace(old, new, 1))
    for arguments in (("list",), ("show", "ScaleOp"), ("validate",), ("validate", "--level", "schema")):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert "scaling.yaml:" in result.stderr
        assert "Traceback" not in result.output


def test_validate_tells_every_problem_of_a_malformed_manifest(run: Run, project: Path) -> None:
    (project / "manifest" / "other.yaml").write_text("a: 1\na: 2\n")
    (project / "manifest" / "scaling.yaml").write_text(MANIFEST.replace("mutates: [x]", "mutates: [z]"))
    result = run("validate")
    assert result.exit_code == 2
    assert "schema     errors: 2" in result.stderr
    assert "manifest/other.yaml:2: a: duplicate key" in result.stderr
    assert (
        "manifest/scaling.yaml:13: ops.ScaleOp.effects.mutates.0: 'z' is none of the op's inputs"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (
            lambda p: (p / "pyproject.toml").write_text("[tool.kernelmark]\n"),
            2,
            "tool.kernelmark.name: missing",
        ),
        (lambda p: (p / "pyproject.toml").unlink(), 2, "no pyproject.toml with [tool.kernelmark]"),
        (lambda p: (p / "manifest" / "scaling.yaml").unlink(), 2, "the folder holds no .yaml file"),
        (lambda p: _ops_file(p).unlink(), 2, "there is no module 'lib_of_test_"),
        (lambda p: _ops_file(p).write_text("x = ("), 2, "raised SyntaxError"),
        (lambda p: _ops_file(p).write_text("import no_such_thing"), 3, "No module named 'no_such_thing'"),
        (lambda p: _cases_file(p).unlink(), 2, "cases = 'lib_of_test_"),
        (lambda p: _cases_file(p).write_text("x = ("), 2, "[tool.kernelmark] cases: importing lib_of_test_"),
        (lambda p: _cases_file(p).write_text("import no_such_thing"), 3, "No module named 'no_such_thing'"),
        (lambda p: _spoil_cases(p, '"ScaleOp":', '"ScalOp":'), 2, "ENTRIES names 'ScalOp'"),
    ],
)
def test_a_project_that_cannot_be_used_is_told_with_the_documented_exit_code(
    run: Run, project: Path, spoil: Callable[[Path], Any], code: int, message: str
) -> None:
    spoil(project)
    result = run("validate")
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [("validate", "--level", "schemas"), ("validate", "--coverage", "nowhere"), ("show",), ("list", "--jsn")],
)
def test_a_wrong_option_is_an_exit_code_of_two(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def _store(folder: Path, *cases: str) -> Path:
    header = RunHeader(
        format_version=FORMAT_VERSION,
        run="r",
        started="2025-01-01T00:00:00Z",
        device=DeviceRecord(kind="fake", name="fake"),
        environment=Environment(kernelmark="0", python="3", platform="p"),
        protocol=Protocol(
            timer="host",
            cache=Cache.COLD,
            blocks=1,
            warmup_ms=1,
            sample_ms=1,
            prepare_ms=1,
            min_count=1,
            max_count=1,
        ),
    )
    time = Statistics(samples=1, median_ns=5, mean_ns=5, min_ns=5, max_ns=5)
    timing = Timing(timer="host", cache=Cache.COLD, device_busy=time, latency=time)
    writer = RunWriter.create(folder, header)
    for case in cases:
        writer.row(
            Row(
                case=case,
                op="ScaleOp",
                implementation="mine",
                role=Role.OURS,
                check=Check.VERIFIED,
                timing=timing,
            )
        )
    writer.close()
    return folder


@pytest.mark.spec("T38")
def test_coverage_says_which_cases_a_run_measured_and_which_not(run: Run, tmp_path: Path) -> None:
    ids = ("ScaleOp-small-float16", "ScaleOp-small-float32", "ScaleOp-wide-float32")
    whole = run("validate", "--coverage", str(_store(tmp_path / "whole", *ids)))
    assert whole.exit_code == 0
    assert whole.stdout.splitlines()[-1] == "coverage   ok          cases measured: 3"
    part = run("validate", "--coverage", str(_store(tmp_path / "part", ids[0], "ScaleOp-old-float16")))
    assert part.exit_code == 1
    assert "coverage   errors: 2   cases measured: 1, notes: 1" in part.stdout
    assert "workloads.1: ScaleOp-wide-float32: not measured: the run has no row of it" in part.stdout
    assert "note: " in part.stdout
    assert "signature" not in part.stdout


def test_coverage_of_a_folder_without_a_run_is_told(run: Run, tmp_path: Path) -> None:
    result = run("validate", "--coverage", str(tmp_path))
    assert result.exit_code == 3
    assert "name a folder that holds a run" in result.stderr


def test_the_nearest_project_above_the_working_folder_is_the_default(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    result = CliRunner().invoke(main, ["ops", "list"])
    assert result.exit_code == 0
    assert "ScaleOp" in result.stdout


def test_listing_and_the_levels_that_read_text_import_no_framework(project: Path) -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom kernelmark.cli import main\n"
        "validate = ['validate', '--level', 'signature', '--level', 'bench']\n"
        "for command in (['list'], ['show', 'ScaleOp'], validate):\n"
        "    assert CliRunner().invoke(main, ['ops', *command]).exit_code == 0, command\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project, env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# --- a library to start from ---------------------------------------------------------------------------


def test_what_init_writes_validates_and_is_verified_and_timed_as_it_is(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["ops", "init", str(tmp_path / "ours")])
    assert (done.exit_code, done.output.count("wrote ")) == (0, 7)
    told = done.output.splitlines()[-1].strip()
    assert told == f"cd {tmp_path / 'ours'} && kernelmark ops validate && python -m pytest"
    bin_folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = subprocess.run(
        ["bash", "-c", f"{told} --kernelmark-cache=warm -p no:cacheprovider"],
        env={**os.environ, "PATH": bin_folder},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stdout + program.stderr
    assert "note" not in program.stdout.partition("test session starts")[0]
    assert program.stdout.count("bench      ok") == 1
    assert len(re.findall(r"^  ours +verified +[0-9.]+ [µm]s", program.stdout, re.MULTILINE)) == 3


def test_init_writes_over_nothing_and_into_no_name_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "rows.yaml").write_text("mine")
    done = CliRunner().invoke(main, ["ops", "init", str(tmp_path), "--name", "ours"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        f"this would overwrite {tmp_path / 'manifest' / 'rows.yaml'}; name another folder"
    )
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["manifest", "rows.yaml"]
    for name in ("My-Lib", "1st", "class"):
        done = CliRunner().invoke(
            main, ["ops", "init", str(tmp_path / "new"), "--name", name], standalone_mode=False
        )
        assert isinstance(done.exception, UsageError), name
        assert "cannot be a module's name" in str(done.exception)
    assert not (tmp_path / "new").exists()
