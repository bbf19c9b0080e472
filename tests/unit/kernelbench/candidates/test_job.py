"""A job survives its way to another process; a setting that no run could use is refused when it is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.isolation.channel import plain, typed
from kernelmark.kernelbench.candidates.job import Baseline, Job, Mode, Settings, parse_baselines
from kernelmark.records import Cache


def test_a_job_arrives_in_another_process_as_it_was_sent() -> None:
    settings = Settings(
        dtype="bf16", mode=Mode.EVAL, baselines=(Baseline.EAGER,), cache=Cache.WARM, atol=1e-3, rtol=0.0
    )
    job = Job(
        folder=Path("/v"),
        name="level1/1_a/b.py",
        candidate=Path("/x/b.py"),
        problem="level1/1_a.py",
        model=Path("/y/1_a.py"),
        inputs="4x4xf32xrnd,=3.5",
        init_args="[3, (4, 5), [None, 'text']]",
        settings=settings,
        extensions=Path("/z"),
        drawn=(1, 2),
    )
    assert typed(Job, json.loads(json.dumps(plain(job)))) == job
    assert job.arguments == (3, (4, 5), [None, "text"])
    assert job.case_id == "level1/1_a bf16"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dtype": "i32"}, "--dtype i32"),
        ({"dtype": "f33"}, "f33"),
        ({"seeds": 0}, "--seeds 0: .* at least 1"),
        ({"seed": -1}, "--seed -1"),
        ({"iterations": 3}, "--iterations 3: .* at least 4"),
        ({"tolerance": 0.0}, "tolerance = 0"),
        ({"tolerance": 1e-3, "atol": 1e-3}, "excludes atol and rtol"),
        ({"rtol": float("nan")}, "rtol = nan"),
    ],
)
def test_a_setting_that_no_run_could_use_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_problems_own_tolerances_hold_where_nothing_was_asked_for() -> None:
    assert (Settings().for_problem(1e-2, 1e-3).atol, Settings().for_problem(1e-2, 1e-3).rtol) == (1e-2, 1e-3)
    asked = Settings(tolerance=1e-2)
    assert asked.for_problem(1.0, 1.0) is asked
    assert Settings().for_problem(None, None).atol is None


def test_baselines_are_read_from_a_list_or_a_word() -> None:
    assert parse_baselines("all") == tuple(Baseline)
    assert parse_baselines("none") == parse_baselines("") == ()
    assert parse_baselines("inductor, eager,inductor") == (Baseline.INDUCTOR, Baseline.EAGER)
    with pytest.raises(UsageError, match="'indoctor' is none; did you mean 'inductor'"):
        parse_baselines("indoctor")
