"""``bench`` in a process of its own: real ones, on this CPU, with the conflict put there by hand."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

import kernelmark
from kernelmark.errors import InstrumentConflictError
from kernelmark.launches import measuring as subject

CONFLICT = InstrumentConflictError("Proton was asked for, but torch.profiler came first. Use cupti")

FUNCTIONS = """
import os
from pathlib import Path

import torch

WHERE = Path(__file__).with_name("built.txt")


def build():
    with open(WHERE, "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    x = torch.ones(16)
    return lambda: x * x  # made there, so it need not be sent


def build_nothing():
    raise ImportError("no such library")


def fails():
    raise ZeroDivisionError("mine")
"""

pytestmark = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="the default is another timer where there is an accelerator"
)


@pytest.fixture(autouse=True)
def in_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "find_conflict", lambda timer, device: CONFLICT)


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "users_launches.py").write_text(FUNCTIONS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module("users_launches")
    del sys.modules["users_launches"]


@pytest.mark.spec("X7", "X8")
def test_launches_and_builders_that_can_be_imported_are_measured_there_each_built_once(
    functions: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    x = torch.ones(16)
    result = kernelmark.bench(
        {"mine": partial(torch.mul, x, x)},
        references={"theirs": functions.build, "missing": functions.build_nothing},
        warmup=0,
        repeat=1,
        cooldown_s=0,
    )
    assert json.loads(json.dumps(result)) == result
    assert list(result["impls"]) == ["mine", "theirs"]
    assert result["errors"] == {"missing": "ImportError: no such library"}
    assert "BASELINE_ERROR: missing: ImportError: no such library" in capfd.readouterr().err
    protocol = result["benchmark_protocol"]
    assert protocol["own_process"].startswith("timed in a process of its own, because Proton was asked for")
    (pid,) = functions.WHERE.read_text().split()
    assert int(pid) != os.getpid()


@pytest.mark.spec("X7")
@pytest.mark.parametrize("parameter", ["funcs", "references", "prepare"])
def test_a_closure_is_refused_by_name_with_the_profiler_that_came_first_and_nothing_is_built(
    functions: ModuleType, parameter: str
) -> None:
    given: dict = {
        "funcs": {"a": partial(abs, -1)},
        "references": {"b": functions.build},
        "prepare": {"a": partial(abs, -1)},
    }
    name = "b" if parameter == "references" else "a"
    given[parameter][name] = lambda: None
    message = rf"torch\.profiler came first.*{parameter}\['{name}'\] cannot be sent.*can be imported"
    with pytest.raises(InstrumentConflictError, match=message):
        kernelmark.bench(given.pop("funcs"), **given)
    assert not functions.WHERE.exists()


@pytest.mark.spec("X7")
def test_a_launch_that_raises_there_raises_here(functions: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        kernelmark.bench({"a": functions.fails}, cooldown_s=0)
    notes = " ".join(caught.value.__notes__)
    assert "while 'a' was timed, in round 1 of 1" in notes
    assert "in a process of its own" in notes


def test_several_ranks_are_never_moved() -> None:
    from kernelmark.launches.options import LaunchOptions, make_plan

    class Stream:
        def synchronize(self) -> None: ...

    context = kernelmark.DistributedBenchContext(0, 1, lambda: None, lambda value: value, Stream())
    plan = make_plan({"a": lambda: None}, distributed=context, options=LaunchOptions())
    assert subject.conflict_of(plan, None) is None  # type: ignore[arg-type]
