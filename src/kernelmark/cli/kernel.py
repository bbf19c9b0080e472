"""``kernelmark kernel``: compares a kernel file with its reference. Parses, calls :mod:`kernelmark.kernelfile`.

Any ``--NAME=VALUE`` that is no option is a dimension or a scalar, by its exact name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.kernelfile.languages import Language
from kernelmark.kernelfile.request import TIMING_METHODS, Baseline, Request, parse_baselines
from kernelmark.records import Cache
from kernelmark.units import format_ratio

__all__ = ["kernel"]

_VALUES = "kernelmark.kernel.values"
"""Where the command keeps the dimensions and scalars for its callback."""


class _Kernel(click.Command):
    """A command that takes any ``--NAME=VALUE`` and never abbreviates a name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name: each for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}
        rest: list[str] = []
        values: dict[str, str] = {}
        words = iter(args)
        for word in words:
            name, equals, value = word.partition("=")
            if not word.startswith("--") or word == "--":
                rest.append(word)
            elif name in known:
                rest.append(word)
                takes_value = isinstance(known[name], click.Option) and not known[name].is_flag  # type: ignore[attr-defined]
                if takes_value and not equals:
                    rest.extend([following] if (following := next(words, None)) is not None else [])
            else:
                _keep(values, name[2:], value if equals else next(words, None), ctx)
        ctx.meta[_VALUES] = values
        return super().parse_args(ctx, rest)


def _keep(values: dict[str, str], name: str, value: str | None, ctx: click.Context) -> None:
    if not name.isidentifier():
        raise click.UsageError(f"--{name} is no option, and no name that a parameter could have", ctx)
    if value is None or value.startswith("--"):
        raise click.UsageError(f"--{name} has no value; write --{name}=VALUE", ctx)
    if name in values:
        raise click.UsageError(f"--{name} is given twice: {values[name]} and {value}", ctx)
    values[name] = value


@click.command(cls=_Kernel)
@click.argument("solution", metavar="SOLUTION", type=click.Path(path_type=Path))
@click.option("--ref", type=click.Path(path_type=Path), help="Required: file with reference(**kwargs).")
@click.option(
    "--output-dir", type=click.Path(path_type=Path), help="Required: folder for benchmark.md and the run."
)
@click.option(
    "--implementation",
    "--backend",
    "--impl",
    "implementation",
    default="auto",
    show_default=True,
    help=f"Language of SOLUTION: auto, {', '.join(Language)}.",
)
@click.option(
    "--baselines",
    default=Baseline.EAGER.value,
    show_default=True,
    help=f"What to compare with, separated by commas: {', '.join(Baseline)}, all, none.",
)
@click.option(
    "--timing-method",
    help=f"Instrument: {', '.join(TIMING_METHODS)}, or a timer's own name. By default cuda_event on CUDA"
    " devices, host_time elsewhere.",
)
@click.option("--num-warmup", default=5, show_default=True, help="Untimed rounds of each variant.")
@click.option(
    "--num-trials",
    default=100,
    show_default=True,
    help="Samples of each variant; an even number that divides into 5 to 25 blocks.",
)
@click.option("--discard-first", default=1, show_default=True, help="Further rounds that are not kept.")
@click.option("--prewarm-calls", default=1, show_default=True, help="Calls before anything is checked.")
@click.option("--ptr-size", default=0, show_default=True, help="Elements of each buffer; 0 infers it.")
@click.option("--arch", default="auto", show_default=True, help="Architecture in nvcc's command line.")
@click.option("--device", default="auto", show_default=True, help="Where to run: auto, cpu, cuda, ...")
@click.option("--gpu", default=0, show_default=True, help="Number of the CUDA device.")
@click.option("--atol", type=float, help="Absolute tolerance; else the reference file's, else 1e-4.")
@click.option("--rtol", type=float, help="Relative tolerance; else the reference file's, else 1e-3.")
@click.option("--seed", default=42, show_default=True, help="What the inputs are drawn with.")
@click.option(
    "--cache",
    type=click.Choice([each.value for each in Cache]),
    default=Cache.COLD.value,
    show_default=True,
    help="Whether the caches are flushed before each timed call.",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=VALUES",
    help="Benchmark several sizes: M=1024,2048 or K=2^8..2^13; may be repeated.",
)
@click.option("--timeout", default=300.0, show_default=True, help="Seconds that the solution may take.")
@click.option("--no-isolation", is_flag=True, help="Run in this process, for a debugger.")
@click.option("--compile", "compile_", is_flag=True, help="Build the library from SOLUTION first.")
@click.option("--compile-flags", default="", help="Added to the compiler's command line.")
@click.option(
    "--init",
    type=click.Choice([each.value for each in Language]),
    help="Write a working solution and reference in this language into the folder SOLUTION, and stop.",
)
@click.pass_context
def kernel(context: click.Context, solution: Path, init: str | None, **given: Any) -> None:
    """Compare the kernel in the file SOLUTION with its reference: check it, time it, say how sure that is.

    Every --NAME=VALUE that is no option is a dimension or scalar of the kernel, by its exact name: --M=1024.
    """
    values = context.meta[_VALUES]
    if init is not None:
        _init(Language(init), solution, values)
        return
    from kernelmark.kernelfile.run import benchmark

    sweeps = given.pop("sweeps")
    request = _request(solution, values, given)
    if sweeps:
        _sweep(request, sweeps)
        return
    try:
        run = benchmark(request, command=tuple(sys.argv))
    except KernelmarkError as error:
        _show(getattr(error, "comparison", None), request.output_dir)
        raise
    for line in _inferred(run.facts):
        click.echo(line)
    _show(run.comparison, request.output_dir)


def _request(solution: Path, values: dict[str, str], given: dict[str, Any]) -> Request:
    for name in ("ref", "output_dir"):
        if given[name] is None:
            raise UsageError(f"--{name.replace('_', '-')} is missing")
    return Request(
        solution=solution,
        ref=given["ref"],
        output_dir=given["output_dir"],
        values=values,
        baselines=parse_baselines(given["baselines"]),
        timeout_s=given["timeout"],
        isolation=not given["no_isolation"],
        compile=given["compile_"],
        compile_flags=tuple(given["compile_flags"].split()),
        **{name: given[name] for name in _PLAIN},
    )


_PLAIN = (
    "implementation",
    "timing_method",
    "num_warmup",
    "num_trials",
    "discard_first",
    "prewarm_calls",
    "ptr_size",
    "arch",
    "device",
    "gpu",
    "atol",
    "rtol",
    "seed",
    "cache",
)
"""The options that the request takes under the same name."""


def _init(language: Language, folder: Path, values: dict[str, str]) -> None:
    from kernelmark.kernelfile.starting import write_pair

    if values:
        raise UsageError(f"--init takes no --{next(iter(values))}")
    pair = write_pair(language, folder)
    click.echo(f"wrote {pair.solution} and {pair.reference}; run it with:")
    click.echo(f"  {pair.command}")


def _sweep(request: Request, texts: tuple[str, ...]) -> None:
    from kernelmark.kernelfile.sweep import Point, parse_sweep, run_sweep

    points: list[Point] = []

    def tell(point: Point) -> None:
        points.append(point)
        size = " ".join(f"{name}={value}" for name, value in point.values.items())
        outcome = point.found["outcome"] + (" (kept from before)" if point.kept else "")
        click.echo(f"{size}: {'; '.join([outcome, *map(_speedup, point.found['speedups'])])}")

    try:
        run_sweep(request, parse_sweep(texts), command=tuple(sys.argv), told=tell)
    finally:
        if points:
            click.echo(f"the table and the plot are {request.output_dir / 'sweep.md'}")


def _speedup(told: dict[str, Any]) -> str:
    ratio = format_ratio(told["paired"], told["low"], told["high"])
    return f"{ratio} times as fast as {told['baseline']} ({told['verdict']})"


def _inferred(facts: dict[str, Any]) -> list[str]:
    buffers = facts.get("buffers")
    if not buffers:
        return []
    shapes = ", ".join(f"{name} {shape}" for name, shape in buffers.items())
    return [f"buffers: {shapes} ({facts['buffers_from']})"]


def _show(comparison: Any, folder: Path) -> None:
    if comparison is not None:
        click.echo(str(comparison))
        click.echo(f"the report is {folder / 'benchmark.md'}")
