"""Compile small kernels one after the other, let each go, and print how much memory the process holds.

    python scripts/compile_leaks.py                       # 1,000 kernels: parse, lower, compile, call, close
    python scripts/compile_leaks.py --through import      # each imported from PyTorch first
    python scripts/compile_leaks.py --through backend     # each by torch.compile, which is reset after it

The growth is that of the line that fits the second half best; the first kernels load code and fill pools. The exit
code is 1 if a kernel leaves more than --limit-kb behind in the mean.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import linear_regression

import torch

from torchsched.bindings import bindings
from torchsched.descriptors import find_schedule
from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.ingress import Imported, import_model
from torchsched.lowering import lower
from torchsched.targets import detect

LIMIT_KB = {"text": 5.0, "import": 50.0, "backend": 150.0}
"""What a kernel may leave behind. torch.compile leaves 65 to 110 KB of its own, with its ``aot_eager`` as well."""
WIDTH = 24
SHOWN = 20

Kernel = Callable[[int], None]


class Layer(torch.nn.Module):
    """One small layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute."""
        return torch.softmax(torch.relu(self.linear(x)), -1)


def through_text(pipeline: str) -> Kernel:
    """Import once, and parse the module's text for each kernel."""
    ir = bindings("ir")
    first = import_model(Layer().eval(), (torch.zeros(8, WIDTH),))
    text = str(first.module)

    def kernel(_: int) -> None:
        context = ir.Context()
        with context:
            module = ir.Module.parse(text)
        finish(dataclasses.replace(first, context=context, module=module), torch.ones(8, WIDTH), pipeline)

    return kernel


def through_import(pipeline: str) -> Kernel:
    """Import each kernel; the sizes go round."""

    def kernel(number: int) -> None:
        x = torch.ones(2 + number % 7, WIDTH)
        finish(import_model(Layer().eval(), (x,)), x, pipeline)

    return kernel


def through_backend(pipeline: str) -> Kernel:
    """Let torch.compile hand each kernel over."""

    def kernel(number: int) -> None:
        model = torch.compile(Layer().eval(), backend="kernelmark-mlir", options={"pipeline": pipeline})
        with torch.no_grad():
            model(torch.ones(2 + number % 7, WIDTH))
        del model
        torch._dynamo.reset()

    return kernel


THROUGH = {"text": through_text, "import": through_import, "backend": through_backend}


def finish(imported: Imported, x: torch.Tensor, pipeline: str) -> None:
    """Lower, compile, call and let go."""
    target = detect()
    schedule = find_schedule(pipeline, Element.F32, target)
    with compile_lowered(lower(imported, schedule, target)) as compiled:
        (out,) = compiled(*imported.arguments((x,)))
        bound = compiled.bind(imported.arguments((x,)))
    if not torch.equal(bound.run(), out):
        raise SystemExit("a bound call and a plain one gave different answers")


def resident_kb() -> int:
    """Give the memory that this process holds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("/proc/self/status says nothing of memory; this script needs Linux")


def main() -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000, help="kernels (1000)")
    parser.add_argument("--through", choices=THROUGH, default="text", help="where a kernel comes from (text)")
    parser.add_argument("--pipeline", default="loops", help="the schedule (loops)")
    parser.add_argument("--limit-kb", type=float, help="what a kernel may leave behind")
    asked = parser.parse_args()
    limit = LIMIT_KB[asked.through] if asked.limit_kb is None else asked.limit_kb
    kernel = THROUGH[asked.through](asked.pipeline)
    begin, held = time.monotonic(), []
    points = {round(asked.count * part / SHOWN) for part in range(1, SHOWN + 1)} | {1}
    for number in range(1, asked.count + 1):
        kernel(number)
        if number in points:
            gc.collect()  # only here: what a kernel holds must not need it, and it takes longer than a kernel
            held.append((number, resident_kb()))
            print(
                f"{number:6d} kernels  {held[-1][1] / 1024:8.1f} MB  {time.monotonic() - begin:7.1f} s",
                flush=True,
            )
    half = held[len(held) // 2 :]
    slope = linear_regression(*zip(*half, strict=True)).slope if len(half) > 1 else 0.0
    print(f"the second half grew by {slope:.2f} KB a kernel; {limit:g} are allowed")
    return int(slope > limit)


if __name__ == "__main__":
    sys.exit(main())
