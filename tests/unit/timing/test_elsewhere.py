"""Another process: what it gives back, how it fails, and when it is needed."""

from __future__ import annotations

import operator
import os
import sys
import threading
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
import torch

from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.errors import InstrumentConflictError, TimingError, VerificationError
from kernelmark.timing import profilers
from kernelmark.timing.elsewhere import (
    find_conflict,
    in_another_process,
    note_of,
    receive,
    send,
    why_unsendable,
)
from kernelmark.timing.profilers import Profiler

CONFLICT = InstrumentConflictError("Proton was asked for, but torch.profiler came first. Use cupti")


def raise_with_rows(rows: object) -> None:
    raise VerificationError("wrong", comparison=rows)


def test_a_result_comes_back_from_a_process_with_another_id() -> None:
    assert in_another_process(operator.neg, 3, CONFLICT) == -3
    assert in_another_process(eval, "__import__('os').getpid()", CONFLICT) != os.getpid()


def test_an_error_comes_back_whole_with_a_note_of_where_it_was_raised() -> None:
    with pytest.raises(VerificationError, match="wrong") as caught:
        in_another_process(raise_with_rows, [1, 2], CONFLICT)
    assert caught.value.comparison == [1, 2]
    assert caught.value.__notes__ == [note_of(CONFLICT)]


def test_a_process_that_dies_gives_no_answer_and_says_how() -> None:
    with pytest.raises(TimingError, match="came first gave no answer: its process ended with status 5"):
        in_another_process(os._exit, 5, CONFLICT)


def test_what_only_this_process_can_import_is_refused_with_conflict_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "passing.py").write_text("def f(x): ...")
    monkeypatch.syspath_prepend(tmp_path)
    import passing  # type: ignore[import-not-found]

    (tmp_path / "passing.py").unlink()
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    with pytest.raises(
        InstrumentConflictError, match=r"torch\.profiler came first.*No module named 'passing'"
    ):
        in_another_process(passing.f, 1, CONFLICT)


def test_a_result_that_cannot_be_sent_is_told_in_words() -> None:
    with pytest.raises(TimingError, match="lock"):
        in_another_process(eval, "__import__('threading').Lock()", CONFLICT)


@pytest.mark.spec("X7")
def test_a_profiler_that_cannot_follow_another_is_found_out_before_anything_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton.profiler")
    monkeypatch.setattr(profilers, "_used", [Profiler.KINETO])
    device = FakeDevice(kind="cuda", torch_name="cuda:0")
    for name in ("proton", "cudagraph_proton"):
        conflict = find_conflict(name, device)
        assert conflict is not None
        assert "Proton was asked for, but torch.profiler came first" in str(conflict)
    device.default_timer = "proton"
    assert find_conflict(None, device) is not None


def test_timers_without_a_profiler_are_not_tried_and_other_troubles_are_left_to_whoever_times() -> None:
    assert find_conflict(None, CpuDevice()) is None
    assert find_conflict("no such timer", CpuDevice()) is None
    assert find_conflict("device_events", FakeDevice(kind="cuda")) is None
    assert find_conflict("kineto", FakeDevice(kind="cuda", default_timer="device_events")) is None


# --- what can be sent ------------------------------------------------------------------------------------


def there_and_back(thing: object, folder: Path) -> object:
    assert send(thing, folder / "x") == ""
    return receive(folder / "x")


@pytest.mark.spec("X7")
def test_functions_come_back_as_themselves_with_their_arguments(tmp_path: Path) -> None:
    back = there_and_back(partial(operator.add, 2), tmp_path)
    assert back.func is operator.add  # type: ignore[attr-defined]
    assert back(3) == 5  # type: ignore[operator]


def test_tensors_that_are_one_object_or_share_storage_still_do(tmp_path: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    one, same, view, wide = there_and_back((x, x, x[1:], x[:1].expand(5, 4)), tmp_path)  # type: ignore[misc]
    assert one is same
    assert torch.equal(view, x[1:])
    assert wide.stride() == (0, 1)
    one.zero_()
    assert not view.any()
    assert not wide.any()


def of_the_script(module: str) -> FunctionType:
    made = FunctionType((lambda: None).__code__, {}, "made")
    made.__module__, made.__qualname__ = module, "made"
    return made


@pytest.mark.parametrize(
    ("thing", "reason"),
    [
        (lambda: None, "lambda"),
        (threading.Lock(), "cannot pickle '_thread.lock' object"),
        (of_the_script("__main__"), "made belongs to the main script"),
        ((1, [partial(of_the_script("__main__"))]), "made belongs to the main script"),
        (type("Mine", (), {"__module__": "__main__"}), "Mine belongs to the main script"),
        (type("Mine", (), {"__module__": "__main__"})(), "Mine belongs to the main script"),
    ],
    ids=["lambda", "lock", "function", "inside", "class", "instance"],
)
def test_what_exists_in_one_process_alone_is_refused_with_the_reason(
    thing: object, reason: str, tmp_path: Path
) -> None:
    assert reason in why_unsendable(thing)
    assert reason in send(thing, tmp_path / "x")
