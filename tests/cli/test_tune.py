"""``kernelmark model tune`` as a user runs it: interrupted, gone on with, and its descriptor used."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from kernelmark.cli import main
from kernelmark.errors import TimingError
from kernelmark.models.tuning import TuneRequest, judging
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.records import Check, Role, Row, read_run
from torchsched.bindings import available

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(64, 64), torch.rand(64, 64)]
"""
WAYS = """\
description: a product, packed or not
parameters:
  how: {default: plain, choices: [plain, packed, alike, refuse]}
  free: {default: 1}
pipeline:
  - transform: ways.py:ways
    options: {how: $how}
  - include: shipped:loops.yaml
"""
CODE = """\
from torchsched.transforms.matmul import pack_and_tile

def ways(module, *, target, how):
    if how == "packed":
        pack_and_tile(module, target=target)
    if how == "refuse":
        raise ValueError("no tile fits")
"""


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Be in a folder with a model and a schedule whose packed way is hundreds of times as fast as its plain one."""
    folder, before = tmp_path_factory.mktemp("tune"), Path.cwd()
    (folder / "product.py").write_text(PRODUCT)
    (folder / "ways.yaml").write_text(WAYS)
    (folder / "ways.py").write_text(CODE)
    (folder / "bare.yaml").write_text("pipeline:\n  - include: shipped:loops.yaml\n")
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture
def run(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Run a command in this process."""
    monkeypatch.delenv("KERNELMARK_DEBUG", raising=False)

    def call(*words: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main.main(["model", *words])
        captured = capfd.readouterr()
        return Done(int(end.value.code or 0), captured.out, captured.err)

    return call


Run = Callable[..., Done]
SEARCH = (
    "tune",
    "product.py",
    "--pipeline",
    "ways.yaml",
    "--cache",
    "warm",
    "--threads",
    "2",
    "--out",
    "kept",
)


# --- one search, in the order of these tests ---------------------------------------------------------


def _interrupted(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


def _never(*_: object, **__: object) -> Any:
    raise AssertionError("it was judged before")


def test_an_interrupt_loses_nothing_and_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessJudge, "measure", _interrupted)
    done = run(*SEARCH)
    assert done.code == 130, done.stderr
    assert "4 of 4 candidates: how" in done.stdout
    assert "--resume --out kept goes on" in done.stdout
    kept = read_run("kept")
    assert kept.end is None
    assert len(kept.rows) == 4
    assert Path("kept/report.md").is_file()


def test_the_same_folder_is_not_begun_anew(run: Run) -> None:
    done = run(*SEARCH)
    assert done.code == 2
    assert "kept holds a run already; --resume goes on with it" in done.stderr


def test_another_search_is_not_gone_on_with(run: Run) -> None:
    done = run(*SEARCH, "--resume", "--seed", "1")
    assert done.code == 2
    assert "begun with the seed of the order 0, and this is 1" in done.stderr


def test_what_was_checked_is_not_checked_again_and_the_fastest_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessJudge, "check", _never)
    done = run(*SEARCH, "--resume")
    assert done.code == 0, done.stderr
    assert re.search(r"how=packed is \S+ \[.*\] times as fast as the default", done.stdout)
    assert re.search(r"how=refuse +failed +lower: transform", done.stdout)
    assert re.search(r"0 +default +verified +\S+ .s +the default", done.stdout)
    assert "the same code as default" in done.stdout
    assert "the descriptor is kept/tuned.yaml" in done.stdout
    report = Path("kept/report.md").read_text()
    assert "product: candidates" in report
    assert "product: confirmation of how=packed" in report
    assert "the runs of the race are shorter: 4 blocks of up to 40 samples, 8 blocks" in report
    rows = [row for row in read_run("kept").rows if row.params["phase"] == "summary"]
    assert len(rows) == 4
    assert [row.implementation for row in rows if row.role is Role.OURS] == ["default"]


def test_a_search_that_has_ended_says_the_same_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.Worker, "call", _never)
    before = Path("kept/records.jsonl").read_bytes()
    done = run(*SEARCH, "--resume", "--write", "again.yaml")
    assert done.code == 0, done.stderr
    assert "times as fast as the default, measured apart from the search" in done.stdout
    assert Path("kept/records.jsonl").read_bytes() == before
    assert Path("again.yaml").is_file()


@pytest.mark.spec("L7")
def test_the_descriptor_is_a_pipeline_with_the_values_found(run: Run) -> None:
    explained = run("--explain-schedule", "--pipeline", "kept/tuned.yaml")
    assert explained.code == 0, explained.stderr
    assert re.search(r"how +packed +kept/tuned\.yaml:\d+ +plain, packed, alike, refuse", explained.stdout)
    assert "provenance: model: product.py" in explained.stdout
    assert re.search(r"provenance: ratio_to_default: .*'verdict': 'faster'", explained.stdout)
    assert "ways(how=packed)" in explained.stdout
    done = run("product.py", "--pipeline", "kept/tuned.yaml", "--out", "verified")
    assert done.code == 0, done.stderr
    assert "Success" in done.stdout
    (row,) = read_run("verified").rows
    assert row.check is Check.VERIFIED
    assert "tuned.yaml" in row.backend


# --- what cannot be searched ---------------------------------------------------------------------------


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--search", "hwo"), r"--search hwo: .*not declared; did you mean 'how'\?"),
        (
            ("--search", "how=plain,paked"),
            r"ways\.yaml:3: .*how=paked is none of the choices: plain, packed, alike",
        ),
        (("--search", "free"), r"ways\.yaml:4: .*free has no choices; name the values"),
        (("--search", "how", "--search", "how=plain"), r"--search how is given twice"),
        (("--search", "=3"), r"--search =3: write NAME, or NAME=VALUES"),
        (("--search", "how", "--param", "how=packed"), r"--param holds it at one value"),
        (("--param", "hwo=packed"), r"parameter 'hwo' is not declared; did you mean 'how'\?"),
        (("--param", "how=paked"), r"ways\.yaml:3: .*none of the choices"),
        (("--param", "how=plain"), r"ways\.yaml:1: .*no parameter left"),
        (("--candidates", "1"), r"--candidates 1: give a whole number of at least 2"),
        (("--budget", "0"), r"--budget 0\.0: give a number of seconds"),
        (("--limit", "-1"), r"--limit -1\.0: give a number of seconds"),
        (("--resume",), r"there is no search in elsewhere"),
    ],
)
def test_what_cannot_be_searched_ends_with_2_and_leaves_nothing(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    done = run("tune", "product.py", "--pipeline", "ways.yaml", "--out", "elsewhere", *words)
    assert done.code == 2
    assert re.search(message, done.stderr), done.stderr
    assert not Path("elsewhere").exists()


@pytest.mark.spec("L8")
def test_a_schedule_without_parameters_ends_with_2(run: Run) -> None:
    done = run("tune", "product.py", "--pipeline", "bare.yaml", "--out", "elsewhere")
    assert done.code == 2
    assert "bare.yaml:1: bare.yaml declares no parameters" in done.stderr


def test_the_help_says_what_is_in_force_where_nothing_is_said(run: Run) -> None:
    shown = " ".join(run("tune", "--help").stdout.split())
    defaults = {each.name: each.default for each in fields(TuneRequest)}
    for name in ("candidates", "budget_s", "limit_s"):
        assert f"[default: {defaults[name]:g}]" in shown


def test_a_model_is_needed(run: Run) -> None:
    assert run("tune").code == 2
    assert "no file" in run("tune", "no.py", "--pipeline", "ways.yaml").stderr


# --- how it ends otherwise -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "note", "code"),
    [
        ({}, "output[0] differs", 1),
        ({"stage": "lower"}, "lower: no tile fits", 4),
        ({"stage": "compile", "died": True}, "compile: its process died of SIGSEGV", 4),
    ],
)
def test_a_default_that_fails_ends_the_search_with_the_code_of_its_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, params: dict[str, Any], note: str, code: int
) -> None:
    def check(judge: ProcessJudge, case_id: str, candidates: Any, known: Any) -> tuple[Row, ...]:
        return tuple(
            Row(
                case=case_id,
                implementation=each.label,
                role=Role.OURS,
                check=Check.FAILED,
                note=note,
                params=params,
            )
            for each in candidates
        )

    monkeypatch.setattr(ProcessJudge, "check", check)
    words = ("tune", "product.py", "--pipeline", "ways.yaml", "--out", str(tmp_path / "run"))
    for more in ((), ("--resume",)):
        done = run(*words, *more)
        assert done.code == code, done.stderr
        assert f"the default parameters fail, so that there is nothing to compare with; {note}" in done.stderr
    assert (
        json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[-1])["outcome"] == "failed"
    )


def _all_right(judge: ProcessJudge, case_id: str, candidates: Any, known: Any) -> tuple[Row, ...]:
    return tuple(
        Row(
            case=case_id,
            implementation=each.label,
            role=Role.OURS,
            check=Check.VERIFIED,
            params={"code": each.label},
        )
        for each in candidates
    )


def _untrusted(*_: object, **__: object) -> Any:
    raise TimingError("the clock went back")


def test_a_search_whose_time_is_up_can_be_given_more(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ProcessJudge, "check", _all_right)
    monkeypatch.setattr(ProcessJudge, "measure", _never)
    words = ("tune", "product.py", "--pipeline", "ways.yaml", "--out", str(tmp_path / "run"))
    done = run(*words, "--budget", "1e-9")
    assert done.code == 0, done.stderr
    assert "The time was up before everything was tried; --resume goes on" in done.stdout
    assert read_run(tmp_path / "run").end is None
    monkeypatch.setattr(ProcessJudge, "check", _never)
    monkeypatch.setattr(ProcessJudge, "measure", _untrusted)
    assert run(*words, "--resume").code == 1  # it comes to measuring


def test_a_reading_that_cannot_be_trusted_ends_with_1_and_can_be_gone_on_with(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ProcessJudge, "check", _all_right)
    monkeypatch.setattr(ProcessJudge, "measure", _untrusted)
    done = run("tune", "product.py", "--pipeline", "ways.yaml", "--out", str(tmp_path / "run"))
    assert done.code == 1
    assert "the clock went back" in done.stderr
    assert "goes on" in done.stdout
    assert read_run(tmp_path / "run").end is None


def test_a_folder_that_cannot_be_written_ends_with_3(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("tune", "product.py", "--pipeline", "ways.yaml", "--out", str(tmp_path / "file" / "run"))
    assert done.code == 3
    assert "cannot make the folder" in done.stderr
