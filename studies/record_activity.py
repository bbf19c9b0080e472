"""Record what CUPTI says of a few calls on a CUDA device, as the fixtures that attribution is tested with.

    python studies/record_activity.py tests/data/activity

Each file holds one recording of three calls; times start at 0 and names are as the device gives them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from kernelmark.device import open_device
from kernelmark.timing import Call
from kernelmark.timing.timers.activity import Recording
from kernelmark.timing.timers.cupti import CuptiTimer

COUNT = 3


def calls() -> dict[str, Call]:
    small = torch.randn(256, device="cuda")
    large = torch.randn(1 << 24, device="cuda")
    square = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    other = torch.empty_like(large)
    side = torch.cuda.Stream()
    leaf = torch.randn(1 << 20, device="cuda", requires_grad=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(small, small)
        torch.mul(small, small)

    def kernel_copy_kernel() -> None:
        torch.add(small, small)
        other.copy_(large)
        torch.add(small, small)

    def two_streams() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.add(large, 1.0, out=other)
        torch.mul(large, large)
        torch.cuda.current_stream().wait_stream(side)

    def backward() -> None:
        leaf.grad = None
        (leaf * leaf).sum().backward()

    return {
        "softmax": Call(lambda: torch.softmax(square, -1)),
        "matmul": Call(lambda: torch.mm(square, square)),
        "copy": Call(lambda: other.copy_(large)),
        "kernel_copy_kernel": Call(kernel_copy_kernel),
        "two_streams": Call(two_streams),
        "backward": Call(backward),
        "graph": Call(graph.replay),
        "nothing": Call(lambda: None),
    }


def as_json(recording: Recording) -> str:
    start = min((a.start_ns for a in recording.activities), default=0)
    moved = [
        dataclasses.replace(a, start_ns=a.start_ns - start, end_ns=a.end_ns - start)
        for a in recording.activities
    ]
    used = {a.correlation for a in moved}
    whole = dataclasses.asdict(dataclasses.replace(recording, activities=tuple(moved)))
    for name in ("externals", "threads"):
        whole[name] = {key: value for key, value in whole[name].items() if key in used}
    return json.dumps(whole, indent=1) + "\n"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    device = open_device("cuda")
    flush = device.flusher()
    for name, call in calls().items():
        call.run()
        timer = CuptiTimer()
        timer.open(device)
        try:
            recording = timer.collect(call, flush, COUNT)
        finally:
            timer.close()
        (folder / f"{name}.json").write_text(as_json(recording))
        print(name, len(recording.activities), "activities")


main()
