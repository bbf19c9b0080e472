"""Proton over the replays of a CUDA graph: the sum of each call's kernel times, with no launch from the host.

One graph holds all calls of a pass, each after its own reset and flush, which lie outside the scopes. Not
every call can be captured; one that cannot is an error and is read by no other means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from kernelmark.device import Device
from kernelmark.errors import TimingError
from kernelmark.timing.passes import collection_off
from kernelmark.timing.references import Reference, capture
from kernelmark.timing.timer import Call
from kernelmark.timing.timers.proton import ProtonTimer, launch_scoped
from kernelmark.timing.timers.proton_session import ProtonSession
from kernelmark.timing.timers.proton_tree import GRAPH_SCOPE

__all__ = ["CudagraphProtonTimer"]

_UNCAPTURED = (
    "raised while the call was captured into a CUDA graph; a call that waits for the device, or that allocates or"
    " copies through another library, cannot be captured: ask for proton, kineto or cupti"
)


class CudagraphProtonTimer(ProtonTimer):
    """Sum of kernel times per call, the mean over the replays of one graph."""

    name: ClassVar[str] = "cudagraph_proton"
    replays: ClassVar[int] = 10
    """As often as Triton's do_bench_cudagraph_proton replays its graph."""
    note: ClassVar[str] = (
        "cudagraph_proton: the sum of the times of the call's kernels, each sample the mean of 10 replays of a CUDA"
        " graph; launching, gaps between kernels and the host are not in it"
    )
    own_references: ClassVar[tuple[Reference, ...]] = (
        *capture(torch.cuda, "CUDAGraph", "graph", "stream"),
        *capture(torch.cuda.CUDAGraph, "replay"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._stream: torch.cuda.Stream | None = None

    def open(self, device: Device) -> None:
        """Do as the proton timer, and take the stream that is captured."""
        super().open(device)
        self._stream = torch.cuda.Stream(device=device.torch_name)

    def close(self) -> None:
        """Let Proton and the stream go."""
        super().close()
        self._stream = None

    def _run(self, session: ProtonSession, call: Call, prepare: Callable[[], object], count: int) -> object:
        """Capture all rounds and replay them; the session is open before anything is captured."""
        if self._stream is None or self._device is None:
            raise TimingError(f"the {self.name} timer is not open; time_together opens it")
        stream, graph = self._stream, torch.cuda.CUDAGraph()
        self._device.synchronize()
        with torch.cuda.stream(stream), collection_off(), session.scope(GRAPH_SCOPE):
            captured = _Capture(session, call, prepare)
            try:
                with torch.cuda.graph(graph, stream=stream):
                    captured.rounds(count)
            except BaseException as error:  # noqa: BLE001 - raised again
                # a capture that was broken off raises an error of its own where it ends
                first = captured.error or error
                first.add_note(_UNCAPTURED)
                raise first from first.__cause__
            for _ in range(self.replays):
                graph.replay()
            self._device.synchronize()
        return captured.result


class _Capture:
    """The rounds of one pass while they are captured, and the error that broke them off."""

    def __init__(self, session: ProtonSession, call: Call, prepare: Callable[[], object]) -> None:
        self._in_order = session, call, prepare
        self.result: object = None
        self.error: BaseException | None = None

    def rounds(self, count: int) -> None:
        session, call, prepare = self._in_order
        try:
            self.result = launch_scoped(session, call, prepare, count)
        except BaseException as error:
            self.error = error
            raise
