"""Attribution of what an H200 recorded (``studies/record_activity.py``): the right numbers, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import EmptyIterationError, OffThreadLaunchError, OnlyCopiesError
from kernelmark.timing.timers.activity import Activity, Recording, attribute

FOLDER = Path(__file__).parents[3] / "data" / "activity"


def recorded(name: str) -> Recording:
    raw: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    raw["activities"] = tuple(Activity(**each) for each in raw["activities"])
    for column in ("externals", "threads"):
        raw[column] = {int(key): value for key, value in raw[column].items()}
    return Recording(**raw)


@pytest.mark.spec("T31", "X5")
@pytest.mark.parametrize(
    ("name", "kernels", "copies", "memsets"), [("softmax", 1, 0, 0), ("matmul", 1, 0, 0), ("graph", 2, 0, 0)]
)
def test_kernels_and_memsets_of_a_call_are_its_own(
    name: str, kernels: int, copies: int, memsets: int
) -> None:
    found = attribute(recorded(name), count_copies=False)
    assert found.n_kernels == (kernels,) * 3
    assert found.n_copies == (copies,) * 3
    assert found.n_memsets == (memsets,) * 3
    assert all(0 < busy <= span for busy, span in zip(found.device_busy_ns, found.latency_ns, strict=True))
    assert not any("reduce_kernel" in kernel.name for kernel in found.kernels if name == "matmul")


@pytest.mark.spec("T30")
def test_a_copy_between_two_kernels_counts_where_the_case_says_so() -> None:
    without = attribute(recorded("kernel_copy_kernel"), count_copies=False)
    whole = attribute(recorded("kernel_copy_kernel"), count_copies=True)
    for left_out, busy, counted in zip(
        without.uncounted_copy_ns or (), without.device_busy_ns, whole.device_busy_ns, strict=True
    ):
        assert left_out + busy == counted
        assert left_out > 5 * busy


@pytest.mark.spec("T30")
def test_a_copy_alone_is_refused_unless_it_is_the_work() -> None:
    with pytest.raises(OnlyCopiesError):
        attribute(recorded("copy"), count_copies=False)
    assert min(attribute(recorded("copy"), count_copies=True).device_busy_ns) > 10_000


@pytest.mark.spec("T31")
def test_two_streams_that_overlap_are_counted_once() -> None:
    recording = recorded("two_streams")
    found = attribute(recording, count_copies=False)
    assert found.n_kernels == (2, 2, 2)
    ours = [a for a in recording.activities if recording.externals.get(a.correlation, 0) >= 2]
    assert len({a.stream for a in ours}) == 2
    assert sum(found.device_busy_ns) < sum(a.end_ns - a.start_ns for a in ours)


@pytest.mark.spec("T35", "X6")
def test_a_backward_pass_is_refused_and_not_read_as_the_part_that_was_seen() -> None:
    with pytest.raises(OffThreadLaunchError, match="another thread"):
        attribute(recorded("backward"), count_copies=False)


@pytest.mark.spec("T32")
def test_a_call_that_launches_nothing_is_refused() -> None:
    with pytest.raises(EmptyIterationError):
        attribute(recorded("nothing"), count_copies=False)
