"""How near compiled products of matrices come to what the processor can multiply, beside eager and inductor.

    python studies/matmul_schedules.py [--threads 1,2] [--only TEXT] [--cache warm] [--sample-ms 300] [--param mr=8]

For each product: the fastest reading as GFLOPS, its share of the fastest multiply-add loop of that type on as many
threads, and the ratios of eager's and inductor's time to ours with their intervals; check, timing and ratios are
`kernelmark.compare`'s. The multiply-add loop runs before and after each product and the better one counts: it
keeps two dozen sums in registers and reads nothing. Thin products also show the bytes that they must move a second.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

import kernelmark
from kernelmark.records import Cache
from kernelmark.timing import TimingOptions
from kernelmark.timing.budget import Budget
from kernelmark.verify import Exact, Normalised
from torchsched.bindings import bindings
from torchsched.building import BuildOptions, build
from torchsched.descriptors import find_schedule
from torchsched.elements import Element
from torchsched.execution import Bound, compile_lowered
from torchsched.failures import Stage
from torchsched.lowering import lower
from torchsched.signature import Result, Signature, TensorType
from torchsched.targets import Feature, Target, detect

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64


class Product(torch.nn.Module):
    """``function`` as a model."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


@dataclass(frozen=True)
class Asked:
    """A product to look at."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    function: Callable[..., torch.Tensor] = torch.matmul
    dtype: torch.dtype = F32
    pipeline: str = "matmul"
    thin: bool = False


def matmul(m: int, k: int, n: int, dtype: torch.dtype = F32, *, order: str = "NN") -> Asked:
    a = (m, k) if order[0] == "N" else (k, m)
    b = (k, n) if order[1] == "N" else (n, k)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a if order[0] == "N" else a.T, b if order[1] == "N" else b.T)

    name = f"{m}x{k}x{n} {order} {str(dtype)[6:]}"
    thin = min(m, n) <= 16
    return Asked(name, (a, b), 2 * m * k * n, product, dtype, "matvec" if min(m, n) == 1 else "matmul", thin)


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))


LIST = [
    *(
        matmul(1024, 1024, 1024, dtype, order=order)
        for dtype in (F32, BF16)
        for order in ("NN", "TN", "NT", "TT")
    ),
    matmul(1024, 1024, 1024, F64),
    *(matmul(4096, 4096, 4096, dtype) for dtype in (F32, BF16)),
    *(matmul(1037, 741, 1483, dtype) for dtype in (F32, BF16)),
    *(matmul(821, 295, 592, dtype) for dtype in (F32, BF16)),
    *(matmul(128, 128, 128, dtype) for dtype in (F32, BF16)),
    matmul(256, 65536, 256),
    matmul(4096, 32, 4096),
    Asked("linear 512x1024x1024 gelu", ((512, 1024), (1024, 1024), (1024,)), 2 * 512 * 1024 * 1024, linear),
    Asked("stack of 32, 128x128x128", ((32, 128, 128), (32, 128, 128)), 2 * 32 * 128**3, pipeline="bmm"),
    Asked(
        "stack of 4x8, 256x64x256",
        ((4, 8, 256, 64), (4, 8, 64, 256)),
        2 * 32 * 256 * 64 * 256,
        pipeline="bmm",
    ),
    *(matmul(2048, 16384, 1, dtype) for dtype in (F32, BF16)),
    *(matmul(1, 4096, 4096, dtype) for dtype in (F32, BF16)),
    *(matmul(m, 4096, 4096, F32) for m in (4, 8, 16)),
    matmul(4096, 4096, 8),
    matmul(8, 4096, 4096, BF16, order="NT"),
]

REPEATS = 20_000
"""Turns of the multiply-add loop: about 0.5 ms."""


def multiply_adds(target: Target, dtype: torch.dtype) -> tuple[Bound, int]:
    """Give a loop of nothing but multiply-adds on every thread, and the operations of a call."""
    paired = dtype == BF16 and Feature.AVX512_BF16 in target.features
    bits = 64 if dtype == F64 else 32
    lanes, sums = target.vector_bits // bits, 24 if target.vector_bits == 512 else 12
    number, factor = f"f{bits}", f"vector<{2 * lanes}xbf16>" if paired else f"vector<{lanes}xf{bits}>"
    vector, threads = f"vector<{lanes}x{number}>", target.code_threads
    add = "x86.avx512.dot {s}, %x, %y : {f} -> {v}" if paired else "vector.fma %x, %y, {s} : {v}"
    carried = ", ".join(f"%s{i} = %zero" for i in range(sums))
    kinds = ", ".join([vector] * sums)
    body = "\n".join(f"%t{i} = {add.format(s=f'%s{i}', f=factor, v=vector)}" for i in range(sums))
    total = "\n".join(
        f"%u{i} = arith.addf %r#{i}, {f'%u{i - 1}' if i else '%zero'} : {vector}" for i in range(sums)
    )
    out, row = f"tensor<{threads}x{lanes}x{number}>", f"tensor<{lanes}x{number}>"
    part = f"[%thread, 0] [1, {lanes}] [1, 1] : "
    text = f"""
    func.func @main() -> {out} {{
      %low = arith.constant 0 : index
      %one = arith.constant 1 : index
      %high = arith.constant {REPEATS} : index
      %zero = arith.constant dense<0.0> : {vector}
      %x = arith.constant dense<1.0> : {factor}
      %y = arith.constant dense<0.5> : {factor}
      %empty = tensor.empty() : {out}
      %done = scf.forall (%thread) in ({threads}) shared_outs(%all = %empty) -> {out} {{
        %mine = tensor.extract_slice %all{part}{out} to {row}
        %r:{sums} = scf.for %i = %low to %high step %one iter_args({carried}) -> ({kinds}) {{
          {body}
          scf.yield {", ".join(f"%t{i}" for i in range(sums))} : {kinds}
        }}
        {total}
        %w = vector.transfer_write %u{sums - 1}, %mine[%low] {{in_bounds = [true]}} : {vector}, {row}
        scf.forall.in_parallel {{
          tensor.parallel_insert_slice %w into %all{part}{row} into {out}
        }}
      }}
      return %done : {out}
    }}"""
    ir = bindings("ir")
    context = ir.Context()
    type_ = TensorType((threads, lanes), Element.F64 if bits == 64 else Element.F32)
    imported: Any = SimpleNamespace(
        context=context,
        module=ir.Module.parse(text, context),
        signature=Signature((), (Result("y", type_, None),)),
    )
    compiled = compile_lowered(lower(imported, find_schedule("loops", Element.F32, target), target))
    operations = 2 * REPEATS * sums * lanes * threads * (2 if paired else 1)
    return compiled.bind([]), operations


def fastest_gflops(call: Callable[[], object], operations: int) -> float:
    budget = Budget(warmup_ms=5, sample_ms=30)
    timing = kernelmark.bench_kernel(
        call, options=TimingOptions(budget=budget, cache=Cache.WARM), device="cpu"
    )
    return operations / timing.latency.min_ns


def look(asked: Asked, target: Target, options: argparse.Namespace) -> None:
    torch.set_num_threads(target.code_threads)
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=generator).to(asked.dtype) for shape in asked.shapes)
    model = Product(asked.function).eval()
    values = dict(each.split("=") for each in options.param)
    built = build(model, inputs, BuildOptions((asked.pipeline,), target=target, values=values))
    ours = built.compiled.bind(built.imported.arguments(inputs))
    call, operations = multiply_adds(target, asked.dtype)
    before = fastest_gflops(call, operations)
    torch._dynamo.reset()  # else it counts every product as a recompilation of the first
    with torch.no_grad():
        found = kernelmark.compare(
            {"ours": ours.run, "eager": model, "inductor": torch.compile(model)},
            inputs=inputs,
            reference=model,
            # sums of hundreds of products: the error goes with the sum's size, not with each result's
            verification=Exact(Normalised(1e-2 if asked.dtype == BF16 else 1e-5)),
            options=kernelmark.SessionOptions(
                cache=Cache(options.cache), budget=Budget(sample_ms=options.sample_ms), ceilings=False
            ),
        )
    peak = max(before, fastest_gflops(call, operations))
    row = found.row("ours")
    assert row.timing is not None
    fastest = row.timing.latency.min_ns
    gflops = asked.flops / fastest
    ratios = "  ".join(f"{name} {ratio_text(found, name)}" for name in ("eager", "inductor"))
    moved = sum(x.numel() * x.element_size() for x in (*inputs, ours.results[0])) / fastest
    share = f"{moved:6.1f} GB/s" if asked.thin else f"{gflops / peak:6.1%} of {peak:.0f}"
    seconds = sum(built.seconds.values()) - built.seconds[Stage.IMPORT]
    print(
        f"{asked.name:28} {target.code_threads}t {gflops:7.1f} GFLOPS {share}  {ratios}  compiled in {seconds:.2f} s",
        flush=True,
    )


def ratio_text(found: kernelmark.Comparison, name: str) -> str:
    ratio = found.ratio(name)
    if ratio is None:
        return "-"
    return f"{ratio.value:.2f}" + (f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.low is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="names that hold this text")
    parser.add_argument("--cache", default="warm", choices=[str(each) for each in Cache])
    parser.add_argument("--sample-ms", type=float, default=300)
    parser.add_argument("--param", action="append", default=[], help="a parameter of the schedule, as mr=8")
    options = parser.parse_args()
    # Idle workers of torch's runtime would spin on the cores that ours has work for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for threads in map(int, options.threads.split(",")):
        target = detect(threads=threads)
        print(f"# {target}; caches {options.cache}")
        for asked in LIST:
            if options.only in asked.name:
                look(asked, target, options)


if __name__ == "__main__":
    main()
