"""What a session says of its run: the probe for its caches, and the rows that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import RecordError, UnavailableError, UsageError
from kernelmark.harness import Session, SessionOptions, compare, use_session
from kernelmark.harness import session as subject
from kernelmark.records import Cache, Check, Note, Role, Row, read_run
from kernelmark.report import Format, render
from kernelmark.report.notes import note_text
from kernelmark.report.remarks import remarks
from kernelmark.timing import Budget

QUICK = Budget(warmup_ms=0, sample_ms=0.01, min_count=4, max_count=4, blocks=1, prepare_ms=1)


def recorded(folder: Path, cache: Cache) -> tuple[Row, ...]:
    x = torch.randn(64, 64)
    options = SessionOptions(cache=cache, budget=QUICK, out=folder, ceilings=False)
    return compare(
        {"a": torch.neg, "b": torch.Tensor.neg}, inputs=(x,), reference=torch.neg, options=options
    ).rows


@pytest.mark.spec("T29")
@pytest.mark.parametrize("cache", list(Cache))
def test_every_run_on_this_cpu_holds_and_shows_the_probe_for_the_caches_it_declares(
    tmp_path: Path, cache: Cache
) -> None:
    rows = recorded(tmp_path / "run", cache)
    run = read_run(tmp_path / "run")
    probe = run.header.probe
    assert probe is not None
    assert probe.ratio > 1.3, probe
    assert {row.timing.cache for row in rows if row.timing} == {run.header.protocol.cache} == {cache}
    shown = {Cache.COLD: "times as long", Cache.WARM: "when it was read again"}[cache]
    for each in (Format.CONSOLE, Format.MARKDOWN):
        (line,) = [line for line in render(run, each).splitlines() if "Cache probe" in line]
        assert shown in line
    assert "caches" not in [remark.subject for remark in remarks(run)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice()
    monkeypatch.setattr(subject, "open_device", lambda name: device)
    subject._opened.cache_clear()
    yield device
    subject._opened.cache_clear()


@pytest.mark.spec("T29")
@pytest.mark.parametrize(
    ("cache", "text"),
    [(Cache.COLD, "the flush evicts nothing"), (Cache.WARM, "nothing shows that warm is warm")],
)
def test_a_device_whose_flush_does_nothing_is_in_doubt_in_either_state(
    fake: FakeDevice, cache: Cache, text: str
) -> None:
    header = Session(SessionOptions(cache=cache, ceilings=False)).start()
    assert header.probe is not None
    assert [note for note in header.notes if text in note_text(note)]


def test_a_run_that_only_checks_has_no_probe(fake: FakeDevice) -> None:
    assert Session(SessionOptions(verify_only=True)).start().probe is None
    assert "flush" not in fake.log


def test_without_memory_for_a_flush_a_warm_run_says_so_and_a_cold_one_is_refused(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: FakeDevice) -> None:
        raise UnavailableError("480 MiB to flush with, and 200 MiB free")

    monkeypatch.setattr(FakeDevice, "flusher", no_room)
    warm = Session(SessionOptions(cache=Cache.WARM, ceilings=False)).start()
    assert warm.probe is None
    assert [note_text(note) for note in warm.notes] == [
        "nothing shows that warm is warm: 480 MiB to flush with, and 200 MiB free"
    ]
    with pytest.raises(UnavailableError, match="200 MiB free"):
        Session(SessionOptions(cache=Cache.COLD, ceilings=False)).start()


def test_rows_of_a_cold_run_cannot_be_recorded_in_a_warm_one(
    tmp_path: Path, make_session: Callable[..., Session]
) -> None:
    cold = recorded(tmp_path / "cold", Cache.COLD)
    warm = make_session(cache=Cache.WARM)
    for row in cold:
        with pytest.raises(RecordError, match="was read with cold caches, and the run"):
            warm.record(row)
    assert warm.rows == []


def test_what_must_be_known_of_the_whole_run_stands_in_its_header() -> None:
    options = SessionOptions(verify_only=True, ceilings=False, notes=("the runs differ",))
    assert Session(options).start().notes == (Note.free("the runs differ"),)


def test_a_run_that_was_left_open_is_gone_on_with_under_its_header(tmp_path: Path) -> None:
    options = SessionOptions(verify_only=True, out=tmp_path / "run", ceilings=False)
    first = Session(options, command=("one",))
    header = first.start()
    first.record(_row("a"))
    first.suspend()
    assert first.closed
    with pytest.raises(UsageError, match="has ended"):
        first.record(_row("b"))
    assert read_run(tmp_path / "run").end is None

    second = Session.of(read_run(tmp_path / "run"), options)
    assert second.start() == header
    assert second.command == ("one",)
    second.record(_row("b"))
    second.close()
    run = read_run(tmp_path / "run")
    assert [row.implementation for row in run.rows] == ["a", "b"]
    assert run.end is not None
    assert run.end.rows == 2
    assert Session.of(run, options).closed


def test_a_run_that_has_ended_can_be_looked_at_and_not_added_to(tmp_path: Path) -> None:
    options = SessionOptions(verify_only=True, out=tmp_path / "run", ceilings=False)
    first = Session(options)
    first.record(_row("a"))
    first.close()
    ended = Session.of(read_run(tmp_path / "run"), options)
    assert ended.closed
    assert [row.implementation for row in ended.rows] == ["a"]
    with pytest.raises(UsageError, match="has ended"):
        ended.record(_row("b"))


def _row(name: str) -> Row:
    return Row(case="c", implementation=name, role=Role.OURS, check=Check.VERIFIED)


@pytest.mark.parametrize("cache", ["warm", Cache.WARM])
def test_options_take_words_and_paths_and_hold_what_they_stand_for(cache: Any, tmp_path: Path) -> None:
    options = SessionOptions(cache=cache, out=str(tmp_path))
    assert options.cache is Cache.WARM
    assert options.out == tmp_path
    assert replace(options, device="cpu").cache is Cache.WARM


def test_options_that_no_run_could_use_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="cache='hot': the caches are 'cold' or 'warm'"):
        SessionOptions(cache="hot")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="give a Budget"):
        SessionOptions(budget=3)  # type: ignore[arg-type]


def test_what_a_run_needs_is_looked_for_before_the_first_case(tmp_path: Path) -> None:
    options = SessionOptions(device="cpu", out=tmp_path / "run", verify_only=True, ceilings=False)
    first = Session(options)
    first.require_usable()
    assert not (tmp_path / "run").exists()
    first.record(_row("a"))
    first.close()
    with pytest.raises(RecordError, match="already holds a run"):
        Session(options).require_usable()
    with pytest.raises(UsageError, match="nosuch"):
        Session(SessionOptions(device="cpu", timer="nosuch")).require_usable()


def test_a_comparison_inside_a_session_joins_it(tmp_path: Path) -> None:
    options = SessionOptions(device="cpu", out=tmp_path / "run", verify_only=True, ceilings=False)
    session = Session(options)
    with use_session(session):
        for size in (4, 8):
            compare({"mine": torch.neg}, inputs=(torch.randn(size),), reference=torch.neg, label=f"n={size}")
        compare(
            {"own": torch.neg},
            inputs=(torch.randn(4),),
            reference=torch.neg,
            options=replace(options, out=None),
        )
    session.close()
    assert [row.case for row in read_run(tmp_path / "run").rows] == ["n=4", "n=8"]
