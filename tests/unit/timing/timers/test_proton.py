"""The proton timer over modules that play Triton and CUPTI: what is asked, in which order, what silence means."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import (
    InstrumentConflictError,
    OnlyCopiesError,
    RecordsLostError,
    TimingError,
    UnattributedActivityError,
    UnavailableError,
)
from kernelmark.timing import Call, profilers
from kernelmark.timing.profilers import Profiler, note_use
from kernelmark.timing.timers import proton
from kernelmark.timing.timers.proton import ProtonTimer
from kernelmark.timing.timers.proton_records import ProtonCupti

KERNEL, COPY, MEMSET = 10, 1, 2


class Machine:
    """Plays the device, Proton and Proton's CUPTI: a launch is seen by whichever of the two is listening."""

    def __init__(self) -> None:
        self.clock = 1000
        self.stack: list[dict[str, Any]] = []
        self.root: dict[str, Any] | None = None
        self.name = ""
        self.broken = self.silent = self.disabled = False
        self.sessions = 0
        self.log: list[str] = []
        self.flags = SimpleNamespace(profiling_on=False, command_line=False)
        self.kinds: set[int] = set()
        self.records: list[bytes] = []
        self.dropped = 0
        self.refuses = ""

    def launch(self, name: str = "k", length: int = 100, stream: int = 7) -> None:
        start, self.clock = self.clock, self.clock + length
        if self.root is not None and not self.silent:
            node = self._child(self.stack[-1] if self.stack else self.root, name)
            node["metrics"] = {
                "count": node["metrics"].get("count", 0) + 1,
                "time (ns)": node["metrics"].get("time (ns)", 0) + length,
            }
        self._record(KERNEL, struct.pack("<12xQQ16xI40xI", start, self.clock, stream, 1))

    def copy(self) -> None:
        start, self.clock = self.clock, self.clock + 1000
        self._record(COPY, struct.pack("<4xQQQ8xII", 4096, start, self.clock, 7, 1))

    def memset(self, length: int) -> None:
        start, self.clock = self.clock, self.clock + length
        self._record(MEMSET, struct.pack("<4xQQQ8xII", 16, start, self.clock, 7, 1))

    def _record(self, kind: int, rest: bytes) -> None:
        if kind in self.kinds:
            self.records.append((struct.pack("<I", kind) + rest).ljust(128, b"\0"))

    @staticmethod
    def _child(parent: dict[str, Any], name: str) -> dict[str, Any]:
        for child in parent["children"]:
            if child["frame"]["name"] == name:
                return child
        parent["children"].append({"frame": {"name": name}, "metrics": {}, "children": []})
        return parent["children"][-1]

    # triton.profiler

    def start(self, name: str, *, context: str, data: str) -> int | None:
        assert (context, data) == ("shadow", "tree")
        self.flags.profiling_on = True
        if self.broken:
            raise RuntimeError("Failed to execute cuptiSubscribe with error 39")
        if self.disabled:
            return None
        self.name, self.root = name, {"frame": {"name": "ROOT"}, "metrics": {}, "children": []}
        self.sessions += 1
        self.log.append("start")
        return self.sessions

    def finalize(self, session: int, output_format: str) -> None:
        assert (session, output_format) == (self.sessions, "hatchet")
        Path(self.name + ".hatchet").write_text(json.dumps([self.root, {"CUDA": {}}]))
        self.root = None
        self.log.append("finalize")

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        assert self.root is not None
        self.stack.append(self._child(self.stack[-1] if self.stack else self.root, name))
        try:
            yield
        finally:
            self.stack.pop()

    # libcupti

    def cuptiActivityRegisterCallbacks(self, request: Any, complete: Any) -> int:  # noqa: N802
        assert self.root is None, "a Proton session is open"
        self.request, self.complete = request, complete
        return 39 if self.refuses == "register" else 0

    def cuptiActivityEnable(self, kind: int) -> int:  # noqa: N802
        self.kinds.add(kind)
        return 0

    def cuptiActivityDisable(self, kind: int) -> int:  # noqa: N802
        self.kinds.discard(kind)
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:  # noqa: N802
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        content = b"".join(self.records)
        assert buffer.value is not None
        assert buffer.value % 8 == 0
        assert len(content) <= size.value
        ctypes.memmove(buffer.value, content, len(content))
        self.unread = [buffer.value + 128 * i for i in range(len(self.records))]
        self.records = []
        self.complete(None, 0, buffer, size, len(content))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:  # noqa: N802
        if not self.unread:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        record._obj.value = self.unread.pop(0)
        return 0

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: int, count: Any) -> int:  # noqa: N802
        count._obj.value, self.dropped = self.dropped, 0
        return 0

    def cuptiFinalize(self) -> int:  # noqa: N802
        self.log.append("released")
        return 0


class CudaLike(FakeDevice):
    """A fake device that says it is a CUDA one and whose flush launches a kernel."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(kind="cuda")
        self.machine = machine

    def flusher(self) -> Any:
        return lambda: self.machine.launch("flush", 5000)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    played = Machine()
    package, module, flags = (
        ModuleType("triton"),
        ModuleType("triton.profiler"),
        ModuleType("triton.profiler.flags"),
    )
    package.__path__ = module.__path__ = []  # type: ignore[attr-defined]
    for each in (package, module, flags):
        each.__spec__ = SimpleNamespace(name=each.__name__, submodule_search_locations=[])  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, each.__name__, each)
    for name in ("start", "finalize", "scope"):
        setattr(module, name, getattr(played, name))
    flags.flags = played.flags  # type: ignore[attr-defined]
    monkeypatch.setattr(profilers, "_used", [])
    monkeypatch.setattr(proton.ProtonCupti, "find", classmethod(lambda cls: cls(played)))
    return played


@pytest.fixture
def timer(machine: Machine) -> ProtonTimer:
    opened = ProtonTimer()
    opened.open(CudaLike(machine))
    machine.log.clear()
    return opened


@pytest.mark.spec("X4", "X5")
def test_each_call_is_the_sum_of_its_kernels_and_the_flush_is_in_none(
    timer: ProtonTimer, machine: Machine
) -> None:
    def call() -> str:
        machine.launch("a", 10)
        machine.launch("b", 20)
        return "result"

    found = timer.sample(Call(call), lambda: machine.launch("flush", 5000), 3)
    assert found.device_busy_ns == (30, 30, 30)
    assert found.n_kernels == (2, 2, 2)
    assert timer.take_result() == "result"
    assert machine.log == ["released", "start", "finalize"]


@pytest.mark.spec("X6")
def test_a_call_is_looked_at_once_and_its_passes_are_held_against_that(
    timer: ProtonTimer, machine: Machine
) -> None:
    call = Call(machine.launch)
    timer.sample(call, lambda: None, 2)
    timer.sample(call, lambda: None, 2)
    assert machine.log.count("released") == 1
    lengths = iter([1, 1, 2])

    def varies() -> None:
        for _ in range(next(lengths)):
            machine.launch()

    with pytest.raises(TimingError, match="2 kernels in the scope of call 2 of 2, where 1 were expected"):
        timer.sample(Call(varies), lambda: None, 2)


@pytest.mark.spec("X6", "T30")
@pytest.mark.parametrize("count_copies", [False, True])
def test_a_copy_is_refused_before_anything_is_profiled(
    timer: ProtonTimer, machine: Machine, count_copies: bool
) -> None:
    with pytest.raises(OnlyCopiesError):
        timer.sample(Call(machine.copy), lambda: None, 2, count_copies=count_copies)
    with pytest.raises(UnattributedActivityError):
        timer.sample(
            Call(lambda: (machine.launch(), machine.copy())), lambda: None, 2, count_copies=count_copies
        )
    assert "start" not in machine.log


def test_a_small_memset_is_told_in_the_row(timer: ProtonTimer, machine: Machine) -> None:
    found = timer.sample(Call(lambda: (machine.memset(2), machine.launch())), lambda: None, 2)
    assert found.n_memsets == (1, 1)
    assert "1 memset(s) of 16.0 B" in timer.notes[-1]


@pytest.mark.spec("X7")
def test_the_session_is_ended_when_a_call_raises_and_the_next_one_works(
    timer: ProtonTimer, machine: Machine
) -> None:
    calls = iter([True, False])

    def fail_when_profiled() -> None:
        machine.launch()
        if not next(calls):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        timer.sample(Call(fail_when_profiled), lambda: None, 2)
    assert machine.log[-1] == "finalize"
    assert not machine.flags.profiling_on
    assert timer.sample(Call(machine.launch), lambda: None, 1).device_busy_ns == (100,)


@pytest.mark.spec("X7")
def test_a_call_that_raises_while_it_is_looked_at_leaves_cupti_free(
    timer: ProtonTimer, machine: Machine
) -> None:
    with pytest.raises(ZeroDivisionError):
        timer.sample(Call(lambda: 1 / 0), lambda: None, 2)
    assert machine.log == ["released"]
    assert not machine.kinds


@pytest.mark.spec("X6", "X7")
def test_no_session_is_an_error_that_says_why(machine: Machine) -> None:
    machine.disabled = True
    with pytest.raises(TimingError, match="opened no session"):
        ProtonTimer().open(CudaLike(machine))
    assert not machine.flags.profiling_on
    machine.disabled, machine.broken = False, True
    with pytest.raises(InstrumentConflictError, match="error 39"):
        ProtonTimer().open(CudaLike(machine))
    assert not machine.flags.profiling_on


@pytest.mark.spec("X6", "X7")
def test_a_session_that_gives_no_kernels_is_a_conflict_before_any_call(machine: Machine) -> None:
    machine.silent = True
    with pytest.raises(InstrumentConflictError, match="was not read as such"):
        ProtonTimer().open(CudaLike(machine))


@pytest.mark.spec("X7")
def test_what_came_first_is_named_and_an_open_session_is_left_alone(machine: Machine) -> None:
    machine.flags.profiling_on = True
    with pytest.raises(InstrumentConflictError, match="a Proton session is open"):
        ProtonTimer().open(CudaLike(machine))
    assert machine.flags.profiling_on
    note_use(Profiler.KINETO)
    with pytest.raises(InstrumentConflictError, match=r"torch\.profiler came first"):
        ProtonTimer().open(CudaLike(machine))
    assert machine.sessions == 0


@pytest.mark.spec("X6")
def test_cupti_that_refuses_or_loses_records_gives_no_reading(timer: ProtonTimer, machine: Machine) -> None:
    machine.dropped = 3
    with pytest.raises(RecordsLostError, match="3 records"):
        timer.sample(Call(machine.launch), lambda: None, 1)
    machine.refuses = "register"
    with pytest.raises(InstrumentConflictError, match="refused cuptiActivityRegisterCallbacks"):
        timer.sample(Call(machine.launch), lambda: None, 1)


def test_records_are_read_at_their_offsets(machine: Machine) -> None:
    found = ProtonCupti(machine).collect(
        lambda: (machine.launch(length=5, stream=13), machine.copy(), machine.memset(3)), lambda: None
    )
    assert [(a.kind, a.start_ns, a.end_ns, a.stream, a.size_bytes, a.correlation) for a in found] == [
        ("kernel", 1000, 1005, 13, 0, 1),
        ("copy", 1005, 2005, 7, 4096, 1),
        ("memset", 2005, 2008, 7, 16, 1),
    ]


def test_a_device_that_is_not_nvidias_is_refused(machine: Machine) -> None:
    with pytest.raises(UnavailableError, match="serves NVIDIA"):
        ProtonTimer().open(FakeDevice())


def test_the_installed_triton_takes_what_is_asked_of_it() -> None:
    import inspect

    api = pytest.importorskip("triton.profiler", reason="the extra 'triton' is not installed")
    flags = pytest.importorskip("triton.profiler.flags").flags
    inspect.signature(api.start).bind("name", context="shadow", data="tree")
    inspect.signature(api.finalize).bind(1, output_format="hatchet")
    inspect.signature(api.scope).bind("name")
    assert flags.profiling_on is False
