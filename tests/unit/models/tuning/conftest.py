"""Judges that need no compiler, and books that need no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kernelmark.harness import Session, SessionOptions
from kernelmark.models.tuning.book import STATE_FILE, Book, State, read_state
from kernelmark.models.tuning.judging import Measured
from kernelmark.models.tuning.space import Axis, Candidate, Space
from kernelmark.records import (
    FORMAT_VERSION,
    Cache,
    Check,
    DeviceRecord,
    Environment,
    PassRecord,
    Protocol,
    Role,
    Row,
    RunHeader,
    RunWriter,
    Timing,
    read_run,
)
from kernelmark.stats import paired_ratio, summarise
from kernelmark.timing import Budget, block_samples

HEADER = RunHeader(
    format_version=FORMAT_VERSION,
    run="a-search",
    started="2026-03-01T12:00:00+00:00",
    device=DeviceRecord(kind="cpu", name="A CPU"),
    environment=Environment(kernelmark="0.1.0", python="3.11", platform="Linux", libraries={"torch": "2"}),
    protocol=Protocol(
        timer="host",
        cache=Cache.COLD,
        blocks=20,
        warmup_ms=25,
        sample_ms=300,
        prepare_ms=1500,
        min_count=40,
        max_count=200,
    ),
)


def timing(centre_ns: float, spread: float, blocks: int) -> Timing:
    """Give what an instrument read of a call: the same in each block but for a spread that two calls do not share."""
    passes = []
    for block in range(blocks):
        off = spread * (1 if block % 2 else -1) * (1 + block / blocks)
        samples = (centre_ns * (1 + off), centre_ns * (1 + off))
        passes.append(PassRecord(block=block, position=0, latency_ns=samples, device_busy_ns=samples))
    pool = [each for record in passes for each in record.device_busy_ns]
    return Timing(
        timer="host",
        cache=Cache.COLD,
        device_busy=summarise(pool),
        latency=summarise(pool),
        passes=tuple(passes),
    )


@dataclass
class TableJudge:
    """A judge that reads its answers from a table, and keeps count of what it was asked."""

    times_ns: Mapping[str, float] = field(default_factory=dict)
    """Of each candidate, by label; 100 where none is given."""
    spreads: Mapping[str, float] = field(default_factory=dict)
    checks: Mapping[str, tuple[Check, dict[str, Any], str]] = field(default_factory=dict)
    """Check, parameters and note of the candidates that are not simply right."""
    deadly: frozenset[str] = frozenset()
    """What no run survives."""
    wrong_later: frozenset[str] = frozenset()
    """What is wrong when it is measured."""
    confirmed_ns: Mapping[str, float] = field(default_factory=dict)
    """What is read in a run of two: apart from the search."""
    now_s: float = 0.0
    job_s: float = 1.0
    checked: list[list[str]] = field(default_factory=list)
    measured: list[list[str]] = field(default_factory=list)
    interrupt_at: int | None = None
    """At which measurement the user has had enough."""

    def clock(self) -> float:
        return self.now_s

    def check(
        self, case_id: str, candidates: Sequence[Candidate], known: Mapping[str, str]
    ) -> tuple[Row, ...]:
        self.now_s += self.job_s
        self.checked.append([each.label for each in candidates])
        rows = []
        for each in candidates:
            check, params, note = self.checks.get(each.label, (Check.VERIFIED, {"code": each.label}, ""))
            rows.append(
                Row(
                    case=case_id,
                    implementation=each.label,
                    role=Role.OURS,
                    check=check,
                    params=params,
                    note=note,
                )
            )
        return tuple(rows)

    def measure(
        self, case_id: str, contestants: Sequence[Candidate], budget: Budget, facts: Mapping[str, Any]
    ) -> Measured:
        self.now_s += self.job_s
        labels = [each.label for each in contestants]
        if len(self.measured) == self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(labels)
        if self.deadly & set(labels):
            return Measured((), "compile: its process died of SIGSEGV")
        apart = self.confirmed_ns if "confirmation" in case_id else {}
        if wrong := self.wrong_later & set(labels):
            return Measured(
                tuple(
                    self._row(case_id, label, labels, facts, check=Check.FAILED, note="differs")
                    if label in wrong
                    else self._row(case_id, label, labels, facts)
                    for label in labels
                )
            )
        timings = {
            label: timing(
                {**self.times_ns, **apart}.get(label, 100.0), self.spreads.get(label, 0.001), budget.blocks
            )
            for label in labels
        }
        ours = block_samples(timings[labels[0]])
        return Measured(
            tuple(
                self._row(
                    case_id,
                    label,
                    labels,
                    facts,
                    timing=each,
                    ratio=None if label == labels[0] else paired_ratio(ours, block_samples(each)),
                )
                for label, each in timings.items()
            )
        )

    def _row(self, case_id: str, label: str, labels: list[str], facts: Mapping[str, Any], **more: Any) -> Row:
        role = Role.OURS if label == labels[0] else Role.BASELINE
        values: dict[str, Any] = {"check": Check.VERIFIED, **more}
        return Row(case=case_id, implementation=label, role=role, params=dict(facts), **values)


@pytest.fixture
def candidates() -> Callable[[int], tuple[Candidate, ...]]:
    """Give the default, a=1, a=2, ... in the order of their numbers."""

    def make(count: int) -> tuple[Candidate, ...]:
        space = Space((Axis("a", tuple(range(count)), 0),))
        order = sorted(space.candidates(count, seed=0), key=lambda each: str(each.values["a"]).zfill(3))
        return tuple(Candidate(number, each.values, each.label) for number, each in enumerate(order))

    return make


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Callable[[], Book]]:
    """Open the book of the one search of this test; the second time it is gone on with."""
    folder, opened = tmp_path / "search", list[Session]()
    options = SessionOptions(device="cpu", out=folder, ceilings=False)

    def open_book() -> Book:
        if not folder.exists():
            RunWriter.create(folder, HEADER).close()
        state = read_state(folder) if (folder / STATE_FILE).exists() else State()
        opened.append(Session.of(read_run(folder), options))
        return Book(opened[-1], state, folder)

    yield open_book
    for session in opened:
        session.suspend()


MODEL = """\
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(64, 64), torch.rand(64, 64)]
"""
SCHEDULE = """\
description: a product, in ways that end differently
parameters:
  how:
    default: plain
    choices: [plain, packed, same, wrong, lucky, refuse, raise, hang, crash]
  free: {default: 1}
pipeline:
  - transform: odd.py:odd
    options: {how: $how}
  - include: shipped:loops.yaml
"""
ODD = """\
import ctypes
import os
import signal

from torchsched.transforms.matmul import pack_and_tile


def odd(module, *, target, how):
    if how == "packed":
        pack_and_tile(module, target=target)
    elif how in ("wrong", "lucky"):
        for operation in list(module.body.operations[0].regions[0].blocks[0].operations):
            if operation.operation.name == "linalg.matmul":
                a, b, zeros = operation.operation.operands
                operation.operation.results[0].replace_all_uses_with(a if how == "lucky" else zeros)
                operation.operation.erase()
    elif how == "refuse":
        raise ValueError("no tile fits")
    elif how == "raise":
        raise MemoryError("there is not that much")
    elif how == "hang":
        ctypes.PyDLL(None).pause()  # and lets nobody else have the interpreter
    elif how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a model, and a schedule for it with a parameter that does all sorts of things."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "product.py").write_text(MODEL)
    (folder / "identity.py").write_text(MODEL.replace("torch.rand(64, 64)]", "torch.eye(64)]"))
    (folder / "ways.yaml").write_text(SCHEDULE)
    (folder / "odd.py").write_text(ODD)
    return folder
