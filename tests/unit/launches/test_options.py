"""Everything that can be asked for wrongly is found out before anything is launched or built."""

from __future__ import annotations

import inspect
import math

import pytest
import torch

import kernelmark
from kernelmark.device import FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.launches.options import LAUNCH_TIMERS, LaunchOptions, choose_timer, find_timer, make_plan
from kernelmark.launches.ranks import DistributedBenchContext
from kernelmark.timing import TIMERS, open_timer


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
        *("distributed", "prepare", "reference", "tolerance", "out"),
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
            r"timer='protn': did you mean 'proton'\? give None or one of: event, device_events, proton",
        ),
        ({"timer": 3}, r"timer=3: .*give None or one of"),
        ({"timer": ""}, r"timer='': .*give None or one of"),
        ({"funcs": {}}, r"funcs=\{\}: give at least one launch"),
        ({"funcs": None}, r"funcs=None: give a mapping"),
        ({"funcs": [never]}, r"funcs=\[.*: give a mapping"),
        ({"funcs": {"a": 3}}, r"funcs\['a'\]=3: give a callable that takes no argument"),
        ({"funcs": {3: never}}, r"funcs\[3\]: a name is text"),
        ({"funcs": {"": never}}, r"funcs\[''\]: a name is text, and not empty"),
        ({"references": {"b": "x"}}, r"references\['b'\]='x': give a builder"),
        ({"references": [never]}, r"references=\[.*\]: give a mapping"),
        ({"prepare": {"a": 1}}, r"prepare\['a'\]=1: "),
        (
            {"distributed": object()},
            r"distributed=a builtins\.object: .*DistributedBenchContext\.from_torch\(\)",
        ),
        ({"reference": 3}, r"reference=3: give a callable that returns the right answer, or None"),
        ({"tolerance": 0.1}, r"tolerance=0\.1 without reference="),
        ({"out": 3}, r"out=3: give the path of a folder"),
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
        ("device_events", 25, 100, True),
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


# --- which instrument a name means -------------------------------------------------------------------

NVIDIA = FakeDevice(kind="cuda", torch_name="cuda:0", default_timer="cupti")
AMD = FakeDevice(kind="cuda", torch_name="cuda:0", default_timer="device_events")
OTHER = FakeDevice(kind="xpu", torch_name="xpu:0", default_timer="device_events")
CPU = FakeDevice(kind="cpu")


@pytest.mark.spec("X2")
@pytest.mark.parametrize(
    ("device", "here", "together"),
    [
        (NVIDIA, "proton", "kineto"),
        (AMD, "event", "host"),
        (OTHER, "event", "host"),
        (CPU, "host", "host"),
        (FakeDevice(), "host", "host"),
    ],
    ids=["nvidia", "amd", "other", "cpu", "fake"],
)
def test_the_default_depends_on_the_device_and_on_whether_there_are_other_ranks(
    device: FakeDevice, here: str, together: str
) -> None:
    assert choose_timer(None, device, distributed=False)[0].name == here
    assert choose_timer(None, device, distributed=True)[0].name == together


@pytest.mark.spec("X2")
def test_the_hosts_clock_is_never_taken_without_saying_so() -> None:
    assert "wall time, not kernel time" in choose_timer(None, CPU, distributed=False)[1]
    assert choose_timer(find_timer("host"), CPU, distributed=False)[1] == "asked for"


@pytest.mark.spec("X2")
@pytest.mark.parametrize("name", [each.name for each in LAUNCH_TIMERS])
def test_what_is_asked_for_is_what_is_taken(name: str) -> None:
    assert choose_timer(find_timer(name), NVIDIA, distributed=False)[0].name == name


@pytest.mark.spec("X12")
@pytest.mark.parametrize(("device", "name"), [(NVIDIA, "host"), (CPU, "kineto")], ids=["nvidia", "cpu"])
def test_several_ranks_have_one_timer_on_each_kind_of_device(device: FakeDevice, name: str) -> None:
    with pytest.raises(UsageError, match=rf"timer='{name}' with distributed= on .*, the only timer"):
        choose_timer(find_timer(name), device, distributed=True)


def test_every_timer_of_launches_is_an_instrument_and_every_instrument_is_one_of_launches() -> None:
    names = {each.name for each in LAUNCH_TIMERS}
    assert names == {each.name for each in TIMERS} | {"event"}


@pytest.mark.spec("X6")
@pytest.mark.parametrize("name", ["event", "device_events", "proton", "cudagraph_proton", "kineto", "cupti"])
def test_a_timer_of_gpus_is_unavailable_on_a_cpu(name: str) -> None:
    with pytest.raises(UnavailableError, match=r"host"):
        open_timer(name, CPU)


@pytest.mark.parametrize(("name", "hidden"), [("event", False), ("device_events", True)])
def test_both_names_are_the_pair_of_device_events_and_only_one_hides_the_launch(
    name: str, hidden: bool
) -> None:
    timer = open_timer(name, OTHER)
    assert timer.name == "device_events"
    assert timer.hide_launches is hidden


def test_a_tensor_in_the_wrong_place_is_named_by_its_type_and_not_printed() -> None:
    x = torch.zeros(64, 64)
    for given in ({"funcs": {"a": x}}, {"funcs": x}, {"references": {"b": x}}, {"prepare": {"a": x}}):
        with pytest.raises(UsageError, match=r"=a torch\.Tensor: give a ") as caught:
            kernelmark.bench(**{"funcs": {"a": never}, **given})
        assert "[0." not in str(caught.value)
