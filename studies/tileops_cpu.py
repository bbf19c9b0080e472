"""How the ops of tileops compare on the CPU by way of MLIR and by inductor, and what a call costs before any work.

    python studies/tileops_cpu.py [--samples N] [OP ...]
    python studies/tileops_cpu.py --dispatch

Each call of the manifest is one interleaved run of both, with caches cold and both answers checked before. A ratio is
inductor's time over MLIR's, with its interval: below 1 MLIR is the slower one. `--dispatch` times a call of an op on
64 numbers in turns with the other ways to call it, and prints minima and medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import tileops.ops
from kernelmark.harness import Runner, Session, SessionOptions, cases, use_session
from kernelmark.timing import Budget
from kernelmark.units import format_time
from tileops.ops.base import CpuCompiler, Op

ROUNDS = 2000


def only(op: Op, compiler: CpuCompiler) -> Op:
    """Let one compiler and no other compute an op, whatever the environment says."""
    op._first = partial(_first_through, op, compiler)  # type: ignore[method-assign]
    return op


def _first_through(op: Op, compiler: CpuCompiler, *inputs: object) -> object:
    return op._keep(compiler, inputs, [])


def compare(name: str) -> None:
    """Print a line for each call that the manifest has of one op."""
    kind = getattr(tileops.ops, name)
    for case in cases(kind):
        op = only(kind(**case.arguments), CpuCompiler.MLIR)
        other = only(kind(**case.arguments), CpuCompiler.INDUCTOR)
        bound = other if case.binder is None else case.binder(other, case)
        found = Runner(op, case).compare({"inductor": bound})
        ours, theirs = found.row("tileops"), found.row("inductor")
        assert ours.timing is not None
        assert theirs.timing is not None
        ratio = theirs.ratio
        said = "" if ratio is None else f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        times = " ".join(
            format_time(each.timing.latency.median_ns, 4) for each in (ours, theirs) if each.timing
        )
        print(f"{case.id:52} {said:24} {times:24} {op.backend}; {other.backend}", flush=True)


def dispatch() -> None:
    """Print what a call of a small op costs, in each of the ways to call it."""
    x, weight = torch.randn(1, 64), torch.randn(64)
    arguments = {"rows": 1, "columns": 64, "dtype": "float32"}
    ops = {each: only(tileops.ops.RMSNormFwdOp(**arguments), each) for each in CpuCompiler}
    calls: dict[str, Callable[[], object]] = {each.value: partial(op, x, weight) for each, op in ops.items()}
    from torchsched.building import BuildOptions, build

    class Norm(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return tileops.ops.RMSNormFwdOp(**arguments).forward(x, weight)

    built = build(Norm(), (x, weight), BuildOptions(pipeline=("norm",)))
    compiled, packed = built.compiled, built.imported.arguments((x, weight))
    calls["compiled code, called with tensors"] = lambda: compiled(*packed)
    calls["compiled code, bound"] = compiled.bind(packed)
    times: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter_ns()
            call()
            times[name].append(time.perf_counter_ns() - begin)
    for name, each in times.items():
        print(f"{name:36} at best {min(each) / 1e3:7.2f} µs, median {statistics.median(each) / 1e3:7.2f} µs")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", metavar="OP", help="names such as BmmFwdOp (all)")
    parser.add_argument("--samples", type=int, default=60, help="of each implementation (60)")
    parser.add_argument("--dispatch", action="store_true", help="time calls of a small op instead")
    asked = parser.parse_args()
    if asked.dispatch:
        dispatch()
        return
    budget = Budget(min_count=asked.samples, max_count=asked.samples)
    with use_session(Session(SessionOptions(device="cpu", budget=budget, ceilings=False))):
        for name in asked.ops or tileops.ops.__all__:
            compare(name)


if __name__ == "__main__":
    main()
