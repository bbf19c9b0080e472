"""The stored file: what is written comes back, and what is broken is told with its line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import RecordError
from kernelmark.records import (
    FORMAT_VERSION,
    RECORDS_FILE,
    Cache,
    Check,
    ControlResult,
    DeviceRecord,
    Environment,
    KernelShare,
    Note,
    NoteKind,
    OutputCheck,
    PassRecord,
    ProbeReading,
    Protocol,
    Ratio,
    Role,
    RooflineReading,
    Row,
    RunEnd,
    RunHeader,
    RunWriter,
    Statistics,
    Telemetry,
    Timing,
    read_run,
)

DATA = Path(__file__).parents[2] / "data"

# --- what may be stored ---------------------------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
some_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ns = st.one_of(st.integers(0, 2**63), st.floats(0, allow_nan=False, allow_infinity=False))
number = st.floats(allow_nan=False)
note = st.one_of(
    some_text.map(Note.free),
    st.builds(lambda samples: Note.of(NoteKind.NO_TAILS, samples=samples, needed=10), st.integers(0, 9)),
)
notes = st.lists(note, max_size=2).map(tuple)
texts = st.lists(text, max_size=2).map(tuple)
counts = st.integers(0, 9)
params = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
statistics = st.builds(
    Statistics,
    samples=st.integers(1, 99),
    median_ns=ns,
    mean_ns=ns,
    min_ns=ns,
    max_ns=ns,
    p10_ns=st.none() | ns,
    p90_ns=st.none() | ns,
    std_ns=st.none() | ns,
    notes=notes,
)
telemetry = st.builds(
    Telemetry, clock_mhz=st.none() | number, throttle_reasons=texts, load_average=st.none() | number
)
output_checks = st.builds(
    OutputCheck,
    output=text,
    dtype=text,
    shape=st.lists(counts, max_size=3).map(tuple),
    tolerance=text,
    passed=st.booleans(),
    total=counts,
    mismatched=counts,
    max_abs_error=st.none() | number,
    error_over_tolerance=st.none() | number,
    worst_index=st.none() | st.lists(counts, max_size=3).map(tuple),
    expected=st.none() | text,
)


@st.composite
def passes(draw: st.DrawFn) -> PassRecord:
    size = draw(st.integers(0, 4))
    column = st.lists(ns, min_size=size, max_size=size).map(tuple)
    kernels = st.lists(counts, min_size=size, max_size=size).map(tuple)
    return PassRecord(
        block=draw(counts),
        position=draw(counts),
        latency_ns=draw(column),
        device_busy_ns=draw(column),
        n_kernels=draw(st.none() | kernels),
        before=draw(st.none() | telemetry),
    )


timings = st.builds(
    Timing,
    timer=text,
    cache=st.sampled_from(Cache),
    device_busy=statistics,
    latency=statistics,
    gap_ns=st.none() | ns,
    n_kernels=st.none() | counts,
    kernels=st.lists(
        st.builds(KernelShare, name=text, per_call=number, share=st.floats(0, 1)), max_size=2
    ).map(tuple),
    drift=st.none() | number,
    passes=st.lists(passes(), max_size=2).map(tuple),
    notes=notes,
)
ratios = st.builds(
    lambda value, spread, blocks: Ratio(
        value=value, low=value / spread, high=value * spread, blocks=blocks, verdict="undecided"
    ),
    value=st.floats(1e-3, 1e3),
    spread=st.floats(1, 2),
    blocks=st.integers(1, 20),
)
rooflines = st.builds(
    RooflineReading,
    flops=st.integers(0, 2**80),
    bytes=st.integers(0, 2**80),
    tflops=number,
    bandwidth_tbs=number,
    percent_of_speed_of_light=st.none() | number,
    anomaly=st.none() | text,
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    check = draw(st.sampled_from(Check))
    role = draw(st.sampled_from(Role))
    timing = draw(st.none() | timings) if check.timeable else None
    ratio = draw(st.none() | ratios) if timing and check.comparable and role is Role.BASELINE else None
    return Row(
        case=draw(text),
        op=draw(st.none() | text),
        implementation=draw(text),
        role=role,
        check=check,
        note=draw(st.none() | note if check.comparable else note),
        notes=draw(notes),
        params=draw(st.dictionaries(text, params, max_size=4)),
        outputs=draw(st.lists(output_checks, max_size=2).map(tuple)),
        controls=draw(
            st.lists(
                st.builds(ControlResult, control=text, applied=st.booleans(), caught=st.booleans()),
                max_size=2,
            ).map(tuple)
        ),
        timing=timing,
        ratio=ratio,
        roofline=draw(st.none() | rooflines) if timing else None,
        traceback=draw(st.none() | text),
        seed=draw(st.none() | st.integers()),
    )


def header(**changes: object) -> RunHeader:
    facts: dict = {
        "format_version": FORMAT_VERSION,
        "run": "a-run",
        "started": "2026-03-01T12:00:00+00:00",
        "device": DeviceRecord(kind="fake", name="fake device"),
        "environment": Environment(kernelmark="0.1.0", python="3.11", platform="Linux"),
        "protocol": Protocol(
            timer="fake",
            cache=Cache.COLD,
            blocks=10,
            warmup_ms=25,
            sample_ms=100,
            prepare_ms=2000,
            min_count=10,
            max_count=200,
        ),
    }
    return RunHeader(**{**facts, **changes})


def row(name: str = "ours", **changes: object) -> Row:
    facts: dict = {"case": "a case", "implementation": name, "role": Role.OURS, "check": Check.VERIFIED}
    return Row(**{**facts, **changes})


def end(count: int) -> RunEnd:
    return RunEnd(ended="2026-03-01T12:00:09+00:00", rows=count)


def write_rows(folder: Path, *stored: Row) -> None:
    with closing(RunWriter.create(folder, header())) as writer:
        for each in stored:
            writer.row(each)


def write_lines(folder: Path, *lines: bytes) -> Path:
    path = folder / RECORDS_FILE
    path.write_bytes(b"".join(lines))
    return path


def line(record: RunHeader | Row | RunEnd) -> bytes:
    return record.model_dump_json().encode() + b"\n"


# --- what is written comes back -------------------------------------------------------------------


def _with_caches(one: Row, cache: Cache) -> Row:
    timing = one.timing and one.timing.model_copy(update={"cache": cache})
    return one.model_copy(update={"timing": timing})


@given(stored=st.lists(rows(), max_size=3))
def test_any_rows_come_back_equal(tmp_path_factory: pytest.TempPathFactory, stored: list[Row]):
    folder = tmp_path_factory.mktemp("run")
    start = header(probe=ProbeReading(size_bytes=1, warm_ns=2, cold_ns=3.5, flush_bytes=4, flush_ns=5))
    stored = [_with_caches(each, start.protocol.cache) for each in stored]
    writer = RunWriter.create(folder, start)
    for each in stored:
        writer.row(each)
    writer.end(end(writer.rows))

    run = read_run(folder)

    assert run.header == start
    assert run.rows == tuple(stored)
    assert run.end == end(len(stored))
    assert not run.truncated


def test_an_integer_stays_an_integer_and_a_fraction_a_fraction(tmp_path: Path):
    times = Statistics(samples=2, median_ns=5, mean_ns=5.0, min_ns=2**62 + 1, max_ns=2**63)
    timing = Timing(timer="t", cache=Cache.COLD, device_busy=times, latency=times)
    write_rows(tmp_path, row(timing=timing))
    (back,) = read_run(tmp_path).rows
    assert back.timing is not None
    read = back.timing.device_busy
    assert (type(read.median_ns), type(read.mean_ns)) == (int, float)
    assert read.min_ns == 2**62 + 1  # a float would have lost the last digit


def test_errors_without_bounds_come_back(tmp_path: Path):
    check = OutputCheck(
        output="out",
        dtype="float16",
        shape=(2,),
        tolerance="exact",
        passed=False,
        total=2,
        mismatched=2,
        max_abs_error=float("inf"),
        max_rel_error=float("nan"),
    )
    write_rows(tmp_path, row(check=Check.FAILED, note="wrong", outputs=(check,)))
    (back,) = read_run(tmp_path).rows
    assert back.outputs[0].max_abs_error == float("inf")
    assert back.outputs[0].max_rel_error != back.outputs[0].max_rel_error
    assert b"NaN," not in (tmp_path / RECORDS_FILE).read_bytes().replace(b'"NaN"', b"")


def test_each_row_is_readable_before_the_next_is_made(tmp_path: Path):
    with closing(RunWriter.create(tmp_path, header())) as writer:
        for count in range(1, 4):
            writer.row(row(f"implementation {count}"))
            run = read_run(tmp_path)
            assert len(run.rows) == count
            assert run.end is None
            assert not run.truncated


def test_each_line_is_whole_when_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[bytes] = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        sync(descriptor)
        if (tmp_path / RECORDS_FILE).stat().st_ino == os.fstat(descriptor).st_ino:
            synced.append((tmp_path / RECORDS_FILE).read_bytes())

    monkeypatch.setattr(os, "fsync", look)
    writer = RunWriter.create(tmp_path, header())
    writer.row(row("a"))
    writer.end(end(1))
    assert [content.count(b"\n") for content in synced] == [1, 2, 3]
    assert all(content.endswith(b"}\n") for content in synced)


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_a_stored_file_of_each_format_is_read_and_would_be_written_as_the_newest(
    tmp_path: Path, version: int
):
    run = read_run(DATA / f"run_v{version}")

    assert run.header.run == "20260301-120000-beef"
    assert run.header.probe is not None
    assert run.header.probe.ratio == pytest.approx(3040 / 1950)
    assert [(each.implementation, each.check.value) for each in run.rows] == [
        ("tileops", "verified"),
        ("vllm", "verified"),
        ("sglang", "partial"),
        ("vendor", "noncomparable"),
        ("flashinfer", "unavailable"),
        ("tileops", "verified"),
        ("torch-cublas", "failed"),
        ("tileops", "unverified"),
        ("torch", "unverified"),
    ]
    assert run.rows[0].params["bias"] is None
    vllm = run.rows[1]
    assert vllm.timing is not None
    assert vllm.ratio is not None
    assert (
        sum(len(each.device_busy_ns) for each in vllm.timing.passes) == vllm.timing.device_busy.samples == 30
    )
    assert vllm.ratio.verdict == "faster"
    assert run.end is not None
    assert run.end.rows == 9

    writer = RunWriter.create(tmp_path, run.header)
    for each in run.rows:
        writer.row(each)
    writer.end(run.end)
    again, newest = read_run(tmp_path), read_run(DATA / f"run_v{FORMAT_VERSION}")
    assert (again.header, again.rows, again.end) == (newest.header, newest.rows, newest.end)


def test_what_a_run_of_format_1_said_in_sentences_are_notes():
    raw = json.loads((DATA / "run_v1" / RECORDS_FILE).read_bytes().splitlines()[5])
    row = read_run(DATA / "run_v1").rows[4]
    assert row.note == Note.of(NoteKind.TEXT, text=raw["note"])


def test_a_run_is_read_by_its_folder_or_its_file(tmp_path: Path):
    RunWriter.create(tmp_path, header()).end(end(0))
    assert read_run(tmp_path) == read_run(str(tmp_path / RECORDS_FILE))


# --- writing goes wrong ---------------------------------------------------------------------------


def test_an_existing_run_is_refused_and_left_alone(tmp_path: Path):
    RunWriter.create(tmp_path, header(run="the first")).end(end(0))
    before = (tmp_path / RECORDS_FILE).read_bytes()
    with pytest.raises(RecordError, match="already holds a run; choose another"):
        RunWriter.create(tmp_path, header(run="the second"))
    assert (tmp_path / RECORDS_FILE).read_bytes() == before


@pytest.mark.parametrize("below", [".", "deeper"])
def test_a_folder_that_cannot_be_made_is_told_with_its_path(tmp_path: Path, below: str):
    taken = tmp_path / "taken"
    taken.write_text("a file stands here")
    with pytest.raises(RecordError, match=r"cannot make the folder .*taken.*choose another output folder"):
        RunWriter.create(taken / below, header())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc refuses new files even to root")
def test_a_folder_that_cannot_be_written_is_told_with_its_path():
    with pytest.raises(RecordError, match=r"cannot write /proc/self/records\.jsonl.*choose another"):
        RunWriter.create(Path("/proc/self"), header())


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from kernelmark.errors import RecordError
from kernelmark.records import RunHeader, Row, RunEnd, RunWriter, read_run

folder = Path(sys.argv[1])
stored = read_run(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = RunWriter.create(folder, stored.header)
writer.row(stored.rows[4])
room = (folder / "records.jsonl").stat().st_size + 100
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
try:
    writer.row(stored.rows[0])
except RecordError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
left = read_run(folder)
print(len(left.rows), left.truncated)
writer.row(stored.rows[1])
writer.end(RunEnd(ended=stored.end.ended, rows=writer.rows))
back = read_run(folder)
print([row.implementation for row in back.rows], back.end.rows)
"""


def test_a_row_that_does_not_fit_is_dropped_whole_and_a_later_one_can_follow(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path), str(DATA / "run_v1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    told, left, back = done.stdout.splitlines()
    assert "its 1 earlier rows are intact" in told
    assert left == "1 False"
    assert back == "['flashinfer', 'vllm'] 2"


_NO_ROOM_AT_ALL = """
import resource, signal, sys
from pathlib import Path
from kernelmark.errors import RecordError
from kernelmark.records import RunWriter, read_run

folder, header = Path(sys.argv[1]), read_run(sys.argv[2]).header
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
try:
    RunWriter.create(folder, header)
except RecordError as error:
    print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
RunWriter.create(folder, header)
print(read_run(folder).header == header)
"""


def test_a_run_whose_header_does_not_fit_leaves_no_file_in_the_way(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", _NO_ROOM_AT_ALL, str(tmp_path), str(DATA / "run_v1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["refused", "True"], "")


def test_a_file_that_cannot_be_cut_back_takes_no_more_rows():
    full = open("/dev/full", "ab", buffering=0)  # noqa: SIM115 - the writer closes it
    writer = RunWriter(Path("/dev/full"), header(), full)
    with pytest.raises(RecordError, match="No space left on device"):
        writer.row(row())
    with pytest.raises(RecordError, match="is closed after 0 rows"):
        writer.row(row())


@pytest.mark.parametrize("declared", list(Cache))
def test_a_run_takes_no_row_that_was_read_with_the_other_caches(tmp_path: Path, declared: Cache):
    one = Statistics(samples=1, median_ns=1, mean_ns=1, min_ns=1, max_ns=1)
    kept, other = (
        row(timing=Timing(timer="fake", cache=cache, device_busy=one, latency=one))
        for cache in sorted(Cache, key=lambda cache: cache is not declared)
    )
    start = header()
    start = start.model_copy(update={"protocol": start.protocol.model_copy(update={"cache": declared})})
    with closing(RunWriter.create(tmp_path, start)) as writer:
        writer.row(kept)
        with pytest.raises(
            RecordError, match=f"the run a-run is a {declared} one; record it in a run of its own"
        ):
            writer.row(other)
        writer.row(row("untimed"))
    assert read_run(tmp_path).rows == (kept, row("untimed"))


def test_a_row_interrupted_on_its_way_to_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    with closing(RunWriter.create(tmp_path, header())) as writer:
        writer.row(row("a"))
        with monkeypatch.context() as interrupted:
            interrupted.setattr(os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                writer.row(row("b"))
        writer.end(end(writer.rows))
    run = read_run(tmp_path)
    assert [each.implementation for each in run.rows] == ["a"]
    assert run.end == end(1)


def test_a_run_that_has_ended_takes_no_more_rows_and_ends_once(tmp_path: Path):
    writer = RunWriter.create(tmp_path, header())
    writer.end(end(0))
    writer.end(end(0))
    with pytest.raises(RecordError, match="is closed after 0 rows"):
        writer.row(row())
    assert (tmp_path / RECORDS_FILE).read_bytes().count(b"\n") == 2


def test_text_that_is_no_unicode_is_refused_and_the_run_goes_on(tmp_path: Path):
    with closing(RunWriter.create(tmp_path, header())) as writer:
        with pytest.raises(RecordError, match="surrogates"):
            writer.row(row("a\udcff"))
        writer.row(row("b"))
    assert [each.implementation for each in read_run(tmp_path).rows] == ["b"]


# --- reading what is broken -----------------------------------------------------------------------


def test_a_run_without_an_end_mark_was_cut_short(tmp_path: Path):
    writer = RunWriter.create(tmp_path, header())
    writer.row(row())
    writer.close()
    writer.close()
    run = read_run(tmp_path)
    assert (len(run.rows), run.end, run.truncated) == (1, None, False)


@given(cut=st.integers(1, 60))
def test_a_last_line_cut_anywhere_leaves_the_lines_before_it(
    tmp_path_factory: pytest.TempPathFactory, cut: int
):
    folder = tmp_path_factory.mktemp("run")
    whole = line(header()) + line(row("kept"))
    path = write_lines(folder, whole, line(row("lost"))[:cut])
    run = read_run(path)
    assert [each.implementation for each in run.rows] == ["kept"]
    assert run.truncated


@given(st.integers(0, 400))
def test_a_run_that_was_cut_short_can_be_gone_on_with(tmp_path_factory: pytest.TempPathFactory, cut: int):
    folder = tmp_path_factory.mktemp("run")
    write_rows(folder, row("a"))
    whole = (folder / RECORDS_FILE).read_bytes()
    (folder / RECORDS_FILE).write_bytes(whole + line(row("b"))[:-1][:cut])
    with closing(RunWriter.reopen(read_run(folder))) as writer:
        assert writer.rows == 1
        writer.row(row("c"))
        writer.end(end(writer.rows))
    run = read_run(folder)
    assert [each.implementation for each in run.rows] == ["a", "c"]
    assert not run.truncated
    assert run.end == end(2)


def test_a_run_that_has_ended_cannot_be_gone_on_with(tmp_path: Path):
    write_rows(tmp_path, row("a"))
    with closing(RunWriter.reopen(read_run(tmp_path))) as writer:
        writer.end(end(1))
    before = (tmp_path / RECORDS_FILE).read_bytes()
    with pytest.raises(RecordError, match="has ended; choose another output folder"):
        RunWriter.reopen(read_run(tmp_path))
    assert (tmp_path / RECORDS_FILE).read_bytes() == before


def test_a_run_that_is_gone_cannot_be_gone_on_with(tmp_path: Path):
    write_rows(tmp_path, row("a"))
    run = read_run(tmp_path)
    (tmp_path / RECORDS_FILE).unlink()
    with pytest.raises(RecordError, match="cannot write"):
        RunWriter.reopen(run)


def test_a_header_cut_short_is_no_run(tmp_path: Path):
    write_lines(tmp_path, line(header())[:-20])
    with pytest.raises(RecordError, match="first line must be a run's header"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"{]", "not JSON"),
        (b"", "not JSON"),
        (b"\x00\x00\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "unknown kind None"),
        (b'{"kind": ["row"]}', "unknown kind"),
        (b'{"kind": "column"}', r"unknown kind 'column'; expected one of \['end', 'header', 'row'\]"),
        (b'{"kind": "row", "case": "c"}', "implementation: Field required"),
        (line(row())[:-2] + b', "speed": 9}', "speed: Extra inputs are not permitted"),
        (line(row()).replace(b'"verified"', b'"unverified"').strip(), "row: .*must say why"),
        (line(header()).strip(), "a RunHeader inside a run"),
        (line(end(3)).strip(), "a RunEnd inside a run"),
    ],
)
def test_a_corrupt_line_inside_a_run_is_told_with_its_number(tmp_path: Path, broken: bytes, told: str):
    write_lines(tmp_path, line(header()), line(row()), broken + b"\n", line(row()))
    with pytest.raises(RecordError, match=rf"records\.jsonl:3: {told}"):
        read_run(tmp_path)


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "1", True])
def test_another_format_is_refused_with_both_numbers(tmp_path: Path, version: object):
    raw = json.loads(line(header()))
    raw["format_version"] = version
    raw["something_new"] = True
    write_lines(tmp_path, json.dumps(raw).encode() + b"\n")
    with pytest.raises(
        RecordError, match=rf":1: format {version}, this program reads 1 to {FORMAT_VERSION}; use"
    ):
        read_run(tmp_path)


def test_a_value_that_cannot_be_is_told_with_its_place(tmp_path: Path):
    write_lines(tmp_path, line(header()).replace(b'"blocks":10', b'"blocks":0'))
    with pytest.raises(RecordError, match=r":1: protocol\.blocks: Input should be greater than 0, and is 0"):
        read_run(tmp_path)


@pytest.mark.parametrize("first", [b"", line(row()), line(end(0))])
def test_a_file_that_does_not_start_with_a_header_is_no_run(tmp_path: Path, first: bytes):
    write_lines(tmp_path, first)
    with pytest.raises(RecordError, match="is this a kernelmark run"):
        read_run(tmp_path)


def test_a_missing_run_is_told_with_its_path_and_what_to_do(tmp_path: Path):
    with pytest.raises(
        RecordError, match=r"cannot read .*nowhere: No such file.*name a folder that holds a run"
    ):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"cannot read .*records\.jsonl: No such file"):
        read_run(tmp_path)
