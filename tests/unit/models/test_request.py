"""A request refuses what no run could use, before anything is imported or compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.models.request import Baseline, ModelRequest, parse_baselines
from kernelmark.models.tolerances import TOLERANCES, Asked, figure
from kernelmark.verify import Elementwise, Normalised
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


def test_the_tolerance_is_the_types_unless_one_is_asked_for() -> None:
    assert Asked().for_element(Element.F32) == Normalised(TOLERANCES[Element.F32])
    assert Asked(tolerance=0.01).for_element(Element.F32) == Normalised(0.01)
    assert Asked(atol=1e-3, rtol=1e-2).for_element(Element.F32) == Elementwise(1e-3, 1e-2)
    assert Asked(rtol=1e-2).for_element(Element.F32) == Elementwise(0.0, 1e-2)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Normalised(0.01), "0.01"),
        (Normalised(1e-4), "0.0001"),
        (Elementwise(0.01, 0.01), "0.01"),
        (Elementwise(1e-5, 0.01), "atol=1e-05 rtol=0.01"),
    ],
)
def test_a_rule_is_written_as_one_figure_where_it_has_one(rule: Any, text: str) -> None:
    assert figure(rule) == text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tolerance": -1.0}, "--tolerance -1.0: give a number of at least 0"),
        ({"tolerance": float("nan")}, "--tolerance nan"),
        ({"rtol": float("inf")}, "--rtol inf"),
        ({"tolerance": 0.0}, "for an exact answer write --atol 0 --rtol 0"),
        ({"tolerance": 0.1, "atol": 0.1}, "--tolerance excludes --atol and --rtol"),
    ],
)
def test_a_tolerance_that_there_cannot_be_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Asked(**given)


def test_every_float_has_a_tolerance_and_coarser_types_a_larger_one() -> None:
    ordered = [TOLERANCES[each] for each in (Element.F64, Element.F32, Element.F16, Element.BF16)]
    assert ordered == sorted(ordered)
