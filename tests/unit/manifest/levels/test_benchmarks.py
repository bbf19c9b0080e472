from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.manifest import LibraryConfig, Manifest
from kernelmark.manifest.levels import LevelResult
from kernelmark.manifest.levels.benchmarks import check_benchmarks

pytestmark = pytest.mark.spec("T38")

GOOD = """\
import pytest

from benchmarks import api as bench
from mylib.ops import BmmFwdOp


@pytest.mark.parametrize("case", bench.cases(BmmFwdOp), ids=lambda case: case.id)
def test_bmm_bench(case):
    bench.Runner(BmmFwdOp(**case.arguments), case).compare({"torch": case.reference})
"""

Check = Callable[..., LevelResult]


@pytest.fixture
def check(manifest: Manifest, tmp_path: Path) -> Check:
    """Give the level's result for these benchmark files, by name or one as bench_bmm.py."""

    def run(text: str | bytes | None = None, **files: str) -> LevelResult:
        folder = tmp_path / "project" / "benchmarks" / "ops"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "bench_bmm.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        for name, content in files.items():
            (folder / f"{name}.py").write_text(content)
        root = tmp_path / "project"
        return check_benchmarks(manifest, LibraryConfig(root, "mylib", folder, "mylib.ops", "x", folder))

    return run


def _messages(result: LevelResult) -> list[str]:
    return [f"{finding.where.rpartition('/')[2]}: {finding.message}" for finding in result.errors]


def test_the_example_of_the_documents_passes(check: Check) -> None:
    result = check(GOOD)
    assert (result.checked, result.what, result.findings) == (1, "files", ())


@pytest.mark.parametrize(
    "source",
    [
        "from benchmarks import api as b\nb.cases(BmmFwdOp)\nb.Runner(op, case)",
        "from benchmarks.api import cases as c, Runner as R\nc(BmmFwdOp)\nR(op, case)",
        "import kernelmark as km\nkm.cases(BmmFwdOp)\nkm.Runner(op, case)",
        "import kernelmark\nkernelmark.cases(BmmFwdOp)\nkernelmark.Runner(op, case)",
        "from kernelmark.harness import cases, Runner\ncases(BmmFwdOp)\nRunner(op, case)",
        "import benchmarks.api\nbenchmarks.api.cases(BmmFwdOp)\nbenchmarks.api.Runner(op, case)",
        "from .. import api\napi.cases(BmmFwdOp)\napi.Runner(op, case)",
        "from benchmarks import api as bench\nmk = bench.Runner\nlist_ = bench.cases\nlist_(BmmFwdOp)\nmk(op, case)",
        "from benchmarks.api import *\ncases(BmmFwdOp)\nRunner(op, case)",
        "from benchmarks import api\napi.cases(op=BmmFwdOp)\ndef t(case):\n    return api.Runner(op, case).compare({})",
    ],
)  # fmt: skip
def test_aliases_are_followed(check: Check, source: str) -> None:
    assert check(f"from mylib.ops import BmmFwdOp\n{source}\n").findings == ()


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("bench.Runner(BmmFwdOp(**case.arguments), case).compare", "print", "bench.Runner"),
        ("bench.Runner(BmmFwdOp(**case.arguments), case).compare", "compare", "bench.Runner"),
        ("    bench.Runner(", "    pass  # bench.Runner(", "bench.Runner"),
        ("    bench.Runner(", '    "bench.Runner(op, case)"; f(', "bench.Runner"),
        ("    bench.Runner(", "    bench.Runner; f(", "bench.Runner"),
        ("    bench.Runner(", "    if False: bench.Runner(1, 2)\n    f(", "bench.Runner"),
        ("    bench.Runner(", "    other.Runner(", "bench.Runner"),
        (
            "from benchmarks import api as bench",
            "from elsewhere import api as bench",
            "bench.cases or bench.Runner",
        ),
        ("from benchmarks import api as bench", "import bench", "bench.cases or bench.Runner"),
        ("def test_bmm_bench(case):", "def test_bmm_bench(case, bench):", "bench.Runner"),
        ("bench.cases(BmmFwdOp)", "bench.cases", "bench.cases"),
        ("bench.cases(BmmFwdOp)", "getattr(bench, 'cases')(BmmFwdOp)", "bench.cases"),
    ],
)
def test_a_file_that_does_not_call_both_is_a_finding(check: Check, old: str, new: str, missing: str) -> None:
    messages = _messages(check(GOOD.replace(old, new, 1)))
    assert f"bench_bmm.py:1: never calls {missing}; a benchmark file calls both" in messages


def test_a_name_that_is_bound_again_is_not_taken_for_the_import(check: Check) -> None:
    messages = _messages(check(GOOD + "\nbench = object()\n"))
    assert any("never calls bench.cases or bench.Runner" in message for message in messages)


def test_a_syntax_error_is_a_finding_with_its_line(check: Check) -> None:
    assert any(m.startswith("bench_bmm.py:10: syntax error: ") for m in _messages(check(GOOD + "x = )\n")))


@pytest.mark.parametrize("source", [b"x = '\x00'", b"\xff\xfe", b"x = " + b"(" * 300 + b")" * 300])
def test_a_file_that_python_cannot_read_is_a_finding_and_no_crash(check: Check, source: bytes) -> None:
    assert any(message.startswith("bench_bmm.py:1: ") for message in _messages(check(source)))


def test_a_warning_about_the_users_code_is_not_this_levels_business(check: Check) -> None:
    assert check(GOOD + "\nx = '\\d'\ny = 1 is 1\n").findings == ()


def test_an_op_that_no_file_names_is_a_finding_at_its_place_in_the_manifest(check: Check) -> None:
    messages = _messages(check(GOOD.replace("BmmFwdOp", "OtherOp")))
    assert messages == [
        "bench_bmm.py:7: asks for the cases of 'OtherOp', which the manifest does not have; ops: BmmFwdOp",
        f"gemm.yaml:3: ops.BmmFwdOp: {messages[1].partition('BmmFwdOp: ')[2]}",
    ]
    assert messages[1].endswith("calls bench.cases(BmmFwdOp), so this op is never measured")


@pytest.mark.parametrize(
    "asked",
    [
        "Renamed = BmmFwdOp\nbench.cases(Renamed)",
        "import mylib.ops\nbench.cases(mylib.ops.BmmFwdOp)",
        "for Op in (BmmFwdOp,):\n    bench.cases(Op)",
        "OPS = [BmmFwdOp]\nCASES = [case for Op in OPS for case in bench.cases(Op)]",
    ],
)
def test_an_op_is_named_also_through_an_alias_or_a_loop_over_a_literal(check: Check, asked: str) -> None:
    assert check(GOOD.replace("bench.cases(BmmFwdOp)", "CASES") + asked).findings == ()


@pytest.mark.parametrize("asked", ["bench.cases(OPS[0])", "bench.cases()", "def f(op):\n    bench.cases(op)"])
def test_an_op_that_cannot_be_told_from_the_text_is_a_note_and_not_covered(check: Check, asked: str) -> None:
    result = check(GOOD.replace("bench.cases(BmmFwdOp)", "CASES") + asked)
    assert [note.message.partition(" is asked")[0] for note in result.notes] == [
        "cannot tell which op's cases are asked for here; name the class, or loop over a literal"
    ]
    assert len(result.errors) == 1
    assert "never measured" in result.errors[0].message


def test_a_python_file_of_another_name_is_a_note(check: Check) -> None:
    result = check(GOOD, softmax_bench="", conftest="", __init__="", _shared="")
    assert [(note.where.rpartition("/")[2], note.is_note) for note in result.notes] == [
        ("softmax_bench.py", True)
    ]


def test_a_folder_without_benchmarks_and_a_missing_one_are_findings(check: Check, manifest: Manifest) -> None:
    assert "no bench_*.py in it" in check().errors[0].message
    nowhere = Path("/nowhere/ops")
    config = LibraryConfig(Path("/nowhere"), "mylib", nowhere, "mylib.ops", "x", nowhere)
    assert "no such folder" in check_benchmarks(manifest, config).errors[0].message
