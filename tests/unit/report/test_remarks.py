"""What makes a whole run suspicious, one cause at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.device import probe_verdict
from kernelmark.records import (
    Cache,
    Check,
    ControlResult,
    DeviceRecord,
    ProbeReading,
    RooflineReading,
    Row,
    RunEnd,
    StoredRun,
    Telemetry,
)
from kernelmark.report.remarks import Remark, check_counts, remarks


def told(run: StoredRun) -> list[tuple[str, str]]:
    return [(remark.subject, remark.text) for remark in remarks(run)]


@pytest.fixture
def timed_run(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
) -> Callable[..., StoredRun]:
    """Make a run of one row whose timing has the given changes."""
    return lambda header=None, **changes: make_run(make_row(timing=make_timing(**changes)), **(header or {}))


def test_a_run_in_order_has_no_remark(timed_run: Callable[..., StoredRun]):
    calm = Telemetry(clock_mhz=1980, load_average=0.5)
    throttled_by_one_step = Telemetry(clock_mhz=1965, load_average=0.5)
    assert told(timed_run(before=calm, after=throttled_by_one_step, drift=0.05)) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"end": None}, "the run was cut short: it has no end mark, so rows may be missing"),
        ({"end": "interrupted"}, "the run ended as interrupted"),
        ({"end": "failed"}, "the run ended as failed"),
        (
            {"end": RunEnd(ended="now", rows=0, outcome="failed", detail="disk\nfull")},
            "the run ended as failed: disk; full",
        ),
        ({"end": RunEnd(ended="now", rows=3)}, "the end mark counts 3 rows, the file holds 0"),
        (
            {"truncated": True},
            "the file ends inside a line; the rows before it are whole, later ones are lost",
        ),
    ],
)
def test_a_run_that_is_not_whole_is_remarked(make_run: Callable[..., StoredRun], changes: dict, text: str):
    assert told(make_run(**changes)) == [("incomplete", text)]


def test_uncommitted_changes_are_remarked(make_run: Callable[..., StoredRun], stored: StoredRun):
    environment = stored.header.environment
    dirty = make_run(environment=environment.model_copy(update={"git_dirty": True}))
    assert [subject for subject, _ in told(dirty)] == ["uncommitted changes"]
    unknown = make_run(environment=environment.model_copy(update={"git_dirty": None, "git_revision": None}))
    assert told(unknown) == []


@pytest.mark.spec("T33")
def test_rows_of_different_instruments_are_remarked(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    rows = [make_row(timing=make_timing(timer=timer)) for timer in ("cupti", "cupti", "device_events")]
    assert told(make_run(*rows)) == [
        (
            "instrument",
            "rows were read by different instruments: cupti (2 rows), device_events (1 rows);"
            " compare times only within one",
        )
    ]


@pytest.mark.spec("T29")
@pytest.mark.parametrize(
    ("cold", "cache", "text"),
    [
        (1_290, "cold", "the flush evicts nothing"),
        (1_310, "cold", ""),
        (1_290, "warm", "nothing shows that warm is warm"),
        (1_310, "warm", ""),
    ],
)
def test_a_probe_that_does_not_show_the_caches_as_declared_is_remarked_once(
    make_run: Callable[..., StoredRun], stored: StoredRun, cold: int, cache: str, text: str
):
    probe = ProbeReading(size_bytes=1, warm_ns=1_000, cold_ns=cold, flush_bytes=1, flush_ns=1)
    protocol = stored.header.protocol.model_copy(update={"cache": Cache(cache)})
    notes = (probe_verdict(probe, Cache(cache)),) if text else ()  # as a run stores it
    found = told(make_run(probe=probe, protocol=protocol, notes=notes))
    assert [subject for subject, _ in found] == ["caches"] * bool(text)
    assert all(text in told for _, told in found)


@pytest.mark.parametrize("cache", list(Cache))
def test_a_timed_run_without_a_probe_is_remarked(
    make_row: Callable[..., Row],
    make_timing: Callable,
    make_run: Callable[..., StoredRun],
    stored: StoredRun,
    cache: Cache,
):
    protocol = stored.header.protocol.model_copy(update={"cache": cache})
    row = make_row(timing=make_timing(cache=cache))
    text = f"the run holds no probe, so nothing shows that {cache} is {cache}"
    assert told(make_run(row, probe=None, protocol=protocol)) == [("caches", text)]
    assert told(make_run(make_row(), probe=None, protocol=protocol)) == []


def test_cold_and_warm_times_in_one_file_are_remarked_and_so_is_a_run_that_declares_the_other(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    cold, warm = (make_row(timing=make_timing(cache=cache)) for cache in Cache)
    counts = "2 with cold caches and 1 with warm caches"
    text = f"of these times {counts} were read: do not compare a cold one with a warm one"
    assert told(make_run(cold, warm, cold)) == [("caches", text)]
    assert told(make_run(warm)) == [("caches", "the run was to be cold, and its rows are warm")]


def test_a_check_that_passes_a_wrong_answer_is_remarked_once_per_case(
    make_row: Callable[..., Row], make_run: Callable
):
    controls = (
        ControlResult(control="zeros", applied=True, caught=False),
        ControlResult(control="the mean", applied=True, caught=True),
        ControlResult(control="shuffled", applied=False, caught=False),
    )
    rows = [make_row(name, controls=controls) for name in ("a", "b")]
    assert told(make_run(*rows)) == [
        ("wrong answers pass", "the check of a case lets a wrong answer pass: zeros")
    ]


@pytest.mark.spec("T28")
@pytest.mark.parametrize(("drift", "text"), [(0.0512, "+5.1 %"), (-0.2, "-20.0 %")])
def test_a_drift_of_more_than_5_percent_is_remarked(
    timed_run: Callable[..., StoredRun], drift: float, text: str
):
    assert told(timed_run(drift=drift)) == [
        ("drift", f"the halves of the passes differ by more than 5 % in a case / vllm ({text})")
    ]


def test_a_device_clock_that_moved_is_remarked(timed_run: Callable[..., StoredRun]):
    run = timed_run(before=Telemetry(clock_mhz=1980), after=Telemetry(clock_mhz=1755))
    assert told(run) == [
        (
            "clock",
            "the device ran at 1755 to 1980 MHz; trust ratios, which were taken side by side, before times",
        )
    ]


def test_throttling_is_remarked_with_its_reason_and_rows(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    hot = Telemetry(throttle_reasons=("software power cap",))
    rows = [make_row(str(i), timing=make_timing(after=hot)) for i in range(7)]
    ((subject, text),) = told(make_run(*rows))
    assert subject == "throttling"
    assert text == (
        "the device slowed itself down (software power cap) during"
        " a case / 0, a case / 1, a case / 2, a case / 3, a case / 4, and 2 more"
    )


def test_other_work_on_the_device_is_remarked(timed_run: Callable[..., StoredRun]):
    assert told(timed_run(before=Telemetry(other_processes=("python (pid 7)",)))) == [
        ("other work", "other processes were on the device: python (pid 7)")
    ]


@pytest.mark.parametrize(
    ("kind", "cores", "found"),
    [("cpu", 2, True), ("cpu", 3, False), ("cpu", None, False), ("cuda", 2, False)],
)
def test_a_busy_machine_is_remarked_where_the_cpu_is_the_device(
    timed_run: Callable[..., StoredRun], kind: str, cores: int | None, found: bool
):
    device = DeviceRecord(kind=kind, name="a device", cores=cores)
    run = timed_run(header={"device": device}, after=Telemetry(load_average=2.5))
    assert [subject for subject, _ in told(run)] == ["other work"] * found


@pytest.mark.parametrize(
    ("threads", "helps"), [(2, "OMP_NUM_THREADS=1"), (1, "; measure later"), (None, "; measure later")]
)
def test_a_busy_machine_is_remarked_with_what_helps(
    timed_run: Callable[..., StoredRun], threads: int | None, helps: str
):
    device = DeviceRecord(kind="cpu", name="a device", cores=2, threads=threads)
    ((_, text),) = told(timed_run(header={"device": device}, after=Telemetry(load_average=2.5)))
    assert helps in text


def test_repeated_readings_are_remarked(timed_run: Callable[..., StoredRun]):
    assert told(timed_run(retries=2)) == [
        ("repeated readings", "passes had to be read again: a case / vllm (2)")
    ]


def test_an_impossible_speed_is_remarked(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    reading = RooflineReading(
        flops=1, bytes=1, tflops=1, bandwidth_tbs=9, anomaly="9 TB/s, the device has 4.8"
    )
    run = make_run(make_row(timing=make_timing(), roofline=reading))
    assert told(run) == [("impossible speed", "a case / vllm: 9 TB/s, the device has 4.8")]


def test_what_the_run_noted_about_itself_is_remarked(make_run: Callable[..., StoredRun]):
    assert remarks(make_run(notes=("no telemetry",))) == (Remark("note", "no telemetry"),)


def test_rows_are_counted_by_check_in_the_order_of_trust(stored: StoredRun):
    assert list(check_counts(stored.rows).items()) == [
        (Check.VERIFIED, 3),
        (Check.PARTIAL, 1),
        (Check.UNVERIFIED, 2),
        (Check.NONCOMPARABLE, 1),
        (Check.FAILED, 1),
        (Check.UNAVAILABLE, 1),
    ]
