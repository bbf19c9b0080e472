"""What a header holds, and which of it two runs must share."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kernelmark.errors import RecordError, UsageError
from kernelmark.records import (
    FORMAT_VERSION,
    METADATA,
    Cache,
    DeviceRecord,
    Difference,
    Environment,
    Protocol,
    RunHeader,
    Unlike,
    refuse_unlike,
)


def header(**changed: Any) -> RunHeader:
    """Make a header; a name such as ``device__name`` reaches into a part of it."""
    parts: dict[str, dict[str, Any]] = {"device": {}, "environment": {}, "protocol": {}}
    own = {}
    for name, value in changed.items():
        part, _, field = name.partition("__")
        (parts[part] if field else own).update({field or part: value})
    return RunHeader(
        format_version=FORMAT_VERSION,
        run=own.pop("run", "r"),
        started="2026-03-01T12:00:00+00:00",
        device=DeviceRecord(**{"kind": "cpu", "name": "a CPU", "cores": 8, **parts["device"]}),
        environment=Environment(
            **{
                "kernelmark": "1",
                "python": "3",
                "platform": "p",
                "libraries": {"torch": "2"},
                **parts["environment"],
            }
        ),
        protocol=Protocol(
            **{
                "timer": "host",
                "cache": Cache.COLD,
                "blocks": 10,
                "warmup_ms": 25,
                "sample_ms": 100,
                "prepare_ms": 0,
                "min_count": 10,
                "max_count": 200,
                **parts["protocol"],
            }
        ),
        **own,
    )


def test_everything_that_a_header_holds_is_in_the_table():
    held = []
    for name, field in RunHeader.model_fields.items():
        part = field.annotation
        deep = name in ("device", "environment", "protocol")
        assert not deep or issubclass(part, BaseModel)
        held += [f"{name}.{each}" for each in part.model_fields] if deep else [name]
    assert sorted(held) == sorted(["kind", *METADATA])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"device__cores": 0}, r"DeviceRecord\s+cores\s+Input should be greater than 0 \[.*input_value=0"),
        (
            {"protocol__warmup_ms": -1.0},
            r"Protocol\s+warmup_ms\s+Input should be greater than or equal to 0 \[.*input_value=-1",
        ),
    ],
)
def test_a_value_that_cannot_be_makes_no_header(changed: dict[str, Any], told: str):
    with pytest.raises(ValidationError, match=told):
        header(**changed)


@pytest.mark.parametrize("times", [True, False])
def test_alike_runs_are_compared(times: bool):
    again = header(run="another", protocol__blocks=20, environment__git_revision="abc")
    assert refuse_unlike(header(), again, times=times) == ()


@pytest.mark.parametrize("times", [True, False])
def test_runs_whose_figures_mean_different_things_are_refused_with_both_values(times: bool):
    with pytest.raises(
        RecordError, match=r"device\.name is 'a CPU' and 'another'; protocol\.cache is .*cold.*warm"
    ):
        refuse_unlike(header(), header(device__name="another", protocol__cache=Cache.WARM), times=times)


def test_what_moves_times_refuses_times_and_is_told_beside_ratios():
    old, new = header(), header(environment__libraries={"torch": "3"})
    with pytest.raises(RecordError, match=r"environment\.libraries\.torch is '2' and '3'"):
        refuse_unlike(old, new)
    assert refuse_unlike(old, new, times=False) == (Difference("environment.libraries.torch", "2", "3"),)


@pytest.mark.parametrize("name", ["environment.libraries.torch", "environment.libraries", "environment"])
def test_what_is_the_question_may_differ_and_is_told(name: str):
    old, new = header(), header(environment__libraries={"torch": "3"})
    (told,) = refuse_unlike(old, new, ignore=[name])
    assert str(told) == "environment.libraries.torch is '2' and '3'"


def test_a_library_that_only_one_run_had_is_a_difference():
    with pytest.raises(RecordError, match=r"libraries\.triton is '\(absent\)' and '3'"):
        refuse_unlike(header(), header(environment__libraries={"torch": "2", "triton": "3"}))


def test_only_what_is_held_can_be_ignored():
    with pytest.raises(UsageError, match=r"ignore='devise\.name'.*did you mean 'device\.name'"):
        refuse_unlike(header(), header(), ignore=["devise.name"])


def test_other_values_are_compared_by_keys_of_their_own():
    keys = {"a.b": Unlike.NOT_COMPARED}
    assert refuse_unlike({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, keys=keys) == ()
    with pytest.raises(RecordError, match=r"a\.b is 1 and '\(absent\)'"):
        refuse_unlike({"a": {"b": 1}}, {}, keys=keys)
