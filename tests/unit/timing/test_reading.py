"""One stored timing from the passes of one implementation."""

from __future__ import annotations

import pytest

from kernelmark.records import Cache, KernelShare, Note, PassRecord
from kernelmark.timing.reading import Conditions, block_samples, build_timing
from kernelmark.timing.timer import Samples

COLUMNS = (
    "latency_ns",
    "device_busy_ns",
    "n_kernels",
    "n_copies",
    "n_memsets",
    "uncounted_copy_ns",
    "retries",
)


def _pass(
    block: int, busy: list[float], latency: list[float] | None = None, **rest
) -> tuple[PassRecord, Samples]:
    samples = Samples(latency_ns=tuple(latency or busy), device_busy_ns=tuple(busy), **rest)
    columns = {name: getattr(samples, name) for name in COLUMNS}
    return PassRecord(block=block, position=0, **columns), samples


def _conditions(**changed) -> Conditions:
    given = {
        "timer": "host",
        "tells_gap": False,
        "cache": Cache.COLD,
        "warmup_count": 3,
        "calibration_ns": 12.0,
        "instrument_empty_ns": 1.0,
    }
    return Conditions(**(given | changed))


def test_the_statistics_pool_all_samples_and_the_passes_are_kept() -> None:
    passes = [_pass(0, [10, 20]), _pass(0, [30, 40]), _pass(1, [50, 60]), _pass(1, [70, 80])]
    found = build_timing(passes, _conditions(notes=("a note",)))
    assert (found.device_busy.samples, found.device_busy.median_ns) == (8, 45)
    assert found.passes == tuple(record for record, _ in passes)
    assert (found.warmup_count, found.calibration_ns, found.instrument_empty_ns) == (3, 12.0, 1.0)
    assert found.notes == (Note.free("a note"),)
    assert found.gap_ns is None


@pytest.mark.spec("T28")
def test_the_drift_is_the_second_half_of_the_passes_over_the_first() -> None:
    found = build_timing([_pass(0, [10]), _pass(0, [10]), _pass(1, [11]), _pass(1, [11])], _conditions())
    assert found.drift == pytest.approx(0.1)


@pytest.mark.spec("T28")
def test_the_drift_of_the_plain_protocol_is_between_its_two_passes() -> None:
    assert build_timing([_pass(0, [10, 10]), _pass(0, [9, 9])], _conditions()).drift == pytest.approx(-0.1)


@pytest.mark.spec("T31")
def test_the_gap_is_latency_less_busy_where_the_timer_can_tell() -> None:
    passes = [_pass(0, [10, 10, 10], [12, 13, 90])]
    assert build_timing(passes, _conditions(tells_gap=True)).gap_ns == 3


@pytest.mark.spec("T31")
def test_a_varying_kernel_count_shows_the_largest_and_says_so() -> None:
    passes = [_pass(0, [1, 1], n_kernels=(2, 2)), _pass(0, [1, 1], n_kernels=(2, 5))]
    found = build_timing(passes, _conditions())
    assert (found.n_kernels, found.n_kernels_varied) == (5, True)


def test_copies_memsets_and_retries_are_gathered() -> None:
    one = {"n_copies": (1, 1), "n_memsets": (0, 2), "uncounted_copy_ns": (4, 8), "retries": 1}
    found = build_timing([_pass(0, [1, 1], **one), _pass(0, [1, 1], **one)], _conditions())
    assert (found.n_copies, found.n_memsets, found.uncounted_copy_ns, found.retries) == (1, 2, 6, 2)


def test_what_the_timer_does_not_count_stays_unsaid() -> None:
    found = build_timing([_pass(0, [1])], _conditions())
    assert (found.n_kernels, found.n_kernels_varied, found.n_copies, found.uncounted_copy_ns) == (
        None,
        False,
        None,
        None,
    )


def test_kernel_shares_are_weighed_by_what_each_pass_holds() -> None:
    gemm = KernelShare(name="gemm", per_call=1, share=1.0)
    both = (
        KernelShare(name="gemm", per_call=1, share=0.5),
        KernelShare(name="zero", kind="memset", per_call=2, share=0.5),
    )
    found = build_timing(
        [_pass(0, [10, 20], kernels=(gemm,)), _pass(0, [30, 40], kernels=both)], _conditions()
    )
    assert found.kernels == (
        KernelShare(name="gemm", per_call=1, share=0.65),
        KernelShare(name="zero", kind="memset", per_call=1, share=0.35),
    )


def test_block_samples_joins_the_passes_of_a_block() -> None:
    found = build_timing(
        [_pass(0, [1, 2]), _pass(0, [3, 4]), _pass(1, [5, 6]), _pass(1, [7, 8])], _conditions()
    )
    assert block_samples(found) == ((1, 2, 3, 4), (5, 6, 7, 8))
