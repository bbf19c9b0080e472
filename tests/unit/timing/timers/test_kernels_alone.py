"""Whether a sum of kernel times can stand for a call: kernels one after the other, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import EmptyIterationError, OnlyCopiesError, TimingError, UnattributedActivityError
from kernelmark.timing.timers.activity import Activity, kernels_alone

FOLDER = Path(__file__).parents[3] / "data" / "profilers"


def recorded(name: str) -> list[Activity]:
    return [Activity(**each) for each in json.loads((FOLDER / f"{name}.json").read_text())["work"]]


def kernel(start: int, end: int, stream: int = 7) -> Activity:
    return Activity("kernel", "kernel", start, end, 1, stream)


@pytest.mark.spec("X6")
@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("proton_nothing", EmptyIterationError, "did no work"),
        ("proton_copy_256_MB", OnlyCopiesError, r"1 copies \(256 MiB\)"),
        (
            "proton_kernel_copy_kernel",
            UnattributedActivityError,
            r"1 copies \(256 MiB\), which proton would leave out",
        ),
        ("proton_two_streams", TimingError, r"2 stream\(s\)"),
    ],
)
def test_what_an_h200_did_beside_kernels_is_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        kernels_alone(recorded(name), timer="proton")


@pytest.mark.spec("X5")
@pytest.mark.parametrize(
    ("name", "kernels", "memsets"), [("add_4_MB", 1, 0), ("three_small", 3, 0), ("matmul_4096_bf16", 1, 1)]
)
def test_what_an_h200_did_with_kernels_alone_is_counted(name: str, kernels: int, memsets: int) -> None:
    found = kernels_alone(recorded(f"proton_{name}"), timer="proton")
    assert (found.kernels, found.memsets) == (kernels, memsets)
    assert found.memset_ns < 2000


@pytest.mark.spec("X6")
def test_a_memset_that_is_a_share_of_the_call_is_refused() -> None:
    memset = Activity("memset", "memset", 1000, 1100, 2, 7, 1 << 20)
    kernels_alone([kernel(0, 10_000), memset], timer="proton")
    with pytest.raises(UnattributedActivityError, match=r"1 memsets \(1.00 MiB\)"):
        kernels_alone([kernel(0, 1000), memset], timer="proton")


@pytest.mark.spec("X6")
@given(st.integers(0, 900))
def test_kernels_of_one_stream_may_overlap_while_one_drains_and_no_more(gap: int) -> None:
    work = [kernel(0, 1000), kernel(gap, gap + 1000)]
    with pytest.raises(TimingError, match="added up"):
        kernels_alone(work, timer="proton")
    assert kernels_alone([kernel(0, 1000), kernel(990, 1990)], timer="proton").kernels == 2
