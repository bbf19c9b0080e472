"""Everything that can be asked for wrongly is found out before anything is launched or built."""

from __future__ import annotations

import inspect
import math

import pytest

import kernelmark
from kernelmark.errors import UsageError
from kernelmark.launches.context import DistributedBenchContext
from kernelmark.launches.options import LaunchOptions, make_plan
from kernelmark.launches.timers import LAUNCH_TIMERS, find_timer


def never() -> None:
    raise AssertionError("nothing may be launched or built")


class Stream:
    def synchronize(self) -> None: ...


ALONE = DistributedBenchContext(0, 1, never, lambda value: value, Stream())


@pytest.mark.spec("X1")
def test_only_funcs_is_positional_and_the_defaults_are_those_of_the_specification() -> None:
    parameters = inspect.signature(kernelmark.bench).parameters
    assert list(parameters) == [
        *("funcs", "warmup", "repeat", "cudagraph_rep", "timer", "references", "cooldown_s", "rounds"),
        *("distributed", "prepare"),
    ]
    keyword_only = {name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert keyword_only == set(parameters) - {"funcs"}
    defaults = {name: parameters[name].default for name in keyword_only}
    assert defaults == {**dict.fromkeys(keyword_only), "cooldown_s": 1.0, "rounds": 1}


@pytest.mark.spec("X11")
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"rounds": True}, r"rounds=True: give a whole number of at least 1"),
        ({"rounds": 0}, r"rounds=0: "),
        ({"rounds": -1}, r"rounds=-1: "),
        ({"rounds": 1.5}, r"rounds=1\.5: "),
        ({"rounds": None}, r"rounds=None: "),
        ({"cooldown_s": -0.1}, r"cooldown_s=-0\.1: give a number of seconds of at least 0"),
        ({"cooldown_s": math.nan}, r"cooldown_s=nan: "),
        ({"cooldown_s": math.inf}, r"cooldown_s=inf: "),
        ({"cooldown_s": None}, r"cooldown_s=None: "),
        ({"cooldown_s": True}, r"cooldown_s=True: "),
        ({"cooldown_s": "1"}, r"cooldown_s='1': "),
        ({"repeat": 0}, r"repeat=0: give a number of milliseconds above 0, or None"),
        ({"repeat": -5}, r"repeat=-5: "),
        ({"repeat": math.nan}, r"repeat=nan: "),
        ({"repeat": False}, r"repeat=False: "),
        ({"warmup": -1}, r"warmup=-1: give a number of milliseconds of at least 0, or None"),
        ({"warmup": math.inf}, r"warmup=inf: "),
        ({"warmup": 10**400}, r"warmup=1000"),
        ({"cudagraph_rep": 0}, r"cudagraph_rep=0: "),
        ({"cudagraph_rep": "20"}, r"cudagraph_rep='20': "),
        (
            {"timer": "protn"},
            r"timer='protn': give None or one of 'event', 'proton', .*; did you mean 'proton'\?",
        ),
        ({"timer": 3}, r"timer=3: give None or one of"),
        ({"timer": ""}, r"timer='': give None or one of"),
        ({"funcs": {}}, r"funcs=\{\}: give at least one launch"),
        ({"funcs": None}, r"funcs=None: give a mapping"),
        ({"funcs": [never]}, r"funcs=\[.*\]: give a mapping"),
        ({"funcs": {"a": 3}}, r"funcs\['a'\]=3: give a callable that takes no argument"),
        ({"funcs": {3: never}}, r"funcs\[3\]: a name is text"),
        ({"funcs": {"": never}}, r"funcs\[''\]: a name is text, and not empty"),
        ({"references": {"b": "x"}}, r"references\['b'\]='x': give a builder"),
        ({"references": [never]}, r"references=\[.*\]: give a mapping"),
        ({"prepare": {"a": 1}}, r"prepare\['a'\]=1: "),
        ({"distributed": object()}, r"distributed=<object .*DistributedBenchContext\.from_torch\(\)"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_what_is_expected(bad: dict, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        kernelmark.bench(**{"funcs": {"a": never}, "references": {"r": never}, **bad})


@pytest.mark.spec("X8")
def test_a_reference_named_like_one_of_ours_is_refused() -> None:
    with pytest.raises(UsageError, match=r"references\['a'\]: one of funcs has this name too"):
        kernelmark.bench({"a": never}, references={"a": never})


@pytest.mark.spec("X16")
def test_prepare_for_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"prepare\['c'\]: there is no such implementation; there are 'a', 'b'"
    ):
        kernelmark.bench({"a": never}, references={"b": never}, prepare={"c": never})


@pytest.mark.spec("X12")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"warmup": 25}, "warmup=25 with distributed=: the counts are fixed"),
        ({"warmup": 0}, "warmup=0 with distributed="),
        ({"repeat": 100}, "repeat=100 with distributed="),
        ({"cudagraph_rep": 20}, "cudagraph_rep=20 with distributed="),
        ({"timer": "event"}, "timer='event' with distributed="),
        ({"timer": "proton"}, "timer='proton' with distributed="),
        ({"timer": "cupti"}, "timer='cupti' with distributed="),
    ],
)
def test_several_ranks_take_no_budget_and_no_local_timer(given: dict, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        kernelmark.bench({"a": never}, distributed=ALONE, **given)


@pytest.mark.spec("X3")
@pytest.mark.parametrize(
    ("name", "warmup", "repeat", "in_estimate"),
    [
        ("event", 25, 100, True),
        ("proton", 25, 100, True),
        ("cudagraph_proton", None, 20, False),
        ("kineto", 25, 100, True),
        ("cupti", 25, 100, True),
        ("host", 25, 1000, True),
    ],
)
def test_a_timer_has_its_own_budgets(
    name: str, warmup: float | None, repeat: float, in_estimate: bool
) -> None:
    counts = LaunchOptions().counts(find_timer(name))
    assert (counts.warmup_ms, counts.repeat_ms, counts.flush_in_estimate) == (warmup, repeat, in_estimate)


@pytest.mark.spec("X3")
@pytest.mark.parametrize("timer", LAUNCH_TIMERS, ids=lambda each: each.name)
def test_a_budget_overrides_those_of_the_timers_that_take_it_and_the_others_say_that_they_ignore_it(
    timer,
) -> None:
    options = LaunchOptions(warmup=1, repeat=2, cudagraph_rep=3)
    counts = options.counts(timer)
    if timer.name == "cudagraph_proton":
        assert (counts.warmup_ms, counts.repeat_ms) == (None, 3)
        assert options.ignored(timer) == {"warmup": 1, "repeat": 2}
    else:
        assert (counts.warmup_ms, counts.repeat_ms) == (1, 2)
        assert options.ignored(timer) == {"cudagraph_rep": 3}


def test_a_plan_keeps_what_it_was_given_even_if_the_caller_changes_it_later() -> None:
    funcs = {"a": never}
    plan = make_plan(funcs, options=LaunchOptions())
    funcs.clear()
    assert list(plan.funcs) == ["a"]
