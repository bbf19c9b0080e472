"""A request refuses what no run could use, before anything is imported or compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.models.request import (
    Baseline,
    Mode,
    ModelRequest,
    TuneRequest,
    figure,
    parse_baselines,
    policy_for,
)
from kernelmark.verify import Elementwise, Normalised, Policy, Tolerances
from torchsched.elements import Element
from torchsched.targets import detect

PATH = Path("models/gelu.py")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iterations": 1}, "--iterations 1: give a whole number of at least 2"),
        ({"iterations": 2.5}, "--iterations 2.5"),
        ({"threads": 0}, "--threads 0: give a whole number of at least 1"),
        ({"seed": -1}, "--seed -1"),
        ({"bytes": 0}, "--bytes 0"),
        ({"element": Element.I32}, "--dtype i32: a model is converted to f64, f32, f16, bf16"),
        ({"pipeline": ()}, "no pipeline is named"),
    ],
)
def test_a_value_that_no_run_could_use_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModelRequest(PATH, **given)


def test_a_case_is_named_by_its_file_and_type() -> None:
    assert ModelRequest(PATH).case_id == "gelu"
    assert ModelRequest(PATH, element=Element.BF16).case_id == "gelu bf16"


def test_the_target_is_this_machine_with_what_is_asked_for() -> None:
    assert ModelRequest(PATH, threads=1).resolve_target() == detect(threads=1)
    assert not ModelRequest(PATH, feature="none").resolve_target().features
    other = "aarch64" if detect().name != "aarch64" else "x86_64"
    with pytest.raises(UnavailableError, match=f"target {other}"):
        ModelRequest(PATH, target=other).resolve_target()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("all", (Baseline.EAGER, Baseline.INDUCTOR)),
        ("none", ()),
        ("", ()),
        ("inductor", (Baseline.INDUCTOR,)),
        ("inductor, eager,inductor", (Baseline.INDUCTOR, Baseline.EAGER)),
    ],
)
def test_baselines_are_a_list_of_names(text: str, found: tuple[Baseline, ...]) -> None:
    assert parse_baselines(text) == found


def test_an_unknown_baseline_is_refused_with_near_names() -> None:
    with pytest.raises(UsageError, match="'induktor' is none; did you mean 'inductor'"):
        parse_baselines("eager,induktor")


# --- tolerances ---------------------------------------------------------------------------------------


def test_the_tolerance_is_that_of_the_model_s_type_unless_one_is_asked_for() -> None:
    asked, f32 = Tolerances(), Element.F32.torch
    assert policy_for(asked, Element.F32).for_dtype(f32).rule == Policy().for_dtype(f32).rule
    # what is computed in bf16 is no more exact for being handed out in f32
    rule, source = policy_for(asked, Element.BF16).for_dtype(f32)
    assert rule == Policy().for_dtype(Element.BF16.torch).rule
    assert source == "the whole output, by the model's type bf16"
    assert policy_for(asked, Element.F32).for_dtype("int64").rule == Elementwise(0, 0)
    figure_asked = Tolerances(figure=0.01, source="--tolerance")
    assert policy_for(figure_asked, Element.F32).for_dtype(f32) == (Normalised(0.01), "--tolerance")
    both = Tolerances(atol=1e-3, rtol=1e-2)
    assert policy_for(both, Element.F32).for_dtype(f32).rule == Elementwise(1e-3, 1e-2)


def test_the_line_for_scripts_shows_the_figure() -> None:
    assert figure(Normalised(0.01)) == "0.01"
    assert figure(Elementwise(1e-3, 1e-3)) == "0.001"
    assert figure(Elementwise(1e-3, 1e-2)) == "atol=0.001 rtol=0.01"


# --- a search ---------------------------------------------------------------------------------------------

SEARCHED = ModelRequest(Path("models/net.py"), pipeline=("matmul", "mine/last.yaml"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"candidates": 1}, "--candidates 1: give a whole number of at least 2"),
        ({"candidates": True}, "--candidates True"),
        ({"seed": -1}, "--seed -1: give a whole number of at least 0"),
        ({"budget_s": 0.0}, "--budget 0.0: give a number of seconds above 0"),
        ({"budget_s": float("inf")}, "--budget inf"),
        ({"limit_s": -3.0}, "--limit -3.0"),
        ({"model": ModelRequest(Path("net.py"), mode=Mode.TORCH_COMPILE)}, "leave --torch-compile out"),
        ({"model": ModelRequest(Path("net.py"), device="cuda")}, "for the CPU"),
    ],
)
def test_a_number_that_no_search_could_use_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TuneRequest(**{"model": SEARCHED, **given})


def test_a_search_has_a_folder_and_a_descriptor() -> None:
    assert TuneRequest(SEARCHED).folder == Path("runs/tune/net-matmul-last")
    assert TuneRequest(SEARCHED).descriptor == Path("runs/tune/net-matmul-last/tuned.yaml")
    assert TuneRequest(SEARCHED, out=Path("a")).descriptor == Path("a/tuned.yaml")
    assert TuneRequest(SEARCHED, out=Path("a"), write=Path("b.yaml")).descriptor == Path("b.yaml")
