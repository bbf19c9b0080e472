"""``kernelmark kernel``: compares a kernel file with its reference. Parses, calls :mod:`kernelmark.kernelfile`.

Any ``--NAME=VALUE`` that is no option is a dimension or a scalar, by its exact name.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import click

from kernelmark.errors import UsageError
from kernelmark.kernelfile.request import Language, Option, Request, options
from kernelmark.text import suggestion
from kernelmark.units import NS_PER_MS, format_ratio, format_time

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
                    rest.extend(itertools.islice(words, 1))
            else:
                if not name[2:].isidentifier():
                    options = [each for each in known if each.startswith("--")]
                    near = suggestion(name, options, there_are="options")
                    raise click.UsageError(f"{name} is no option, and no name of a parameter; {near}", ctx)
                value = value if equals else next(words, "--")
                if value.startswith("--"):
                    raise click.UsageError(f"{name} has no value; write {name}=VALUE", ctx)
                if name[2:] in values:
                    raise click.UsageError(f"{name} is given twice: {values[name[2:]]} and {value}", ctx)
                values[name[2:]] = value
        ctx.meta[_VALUES] = values
        return super().parse_args(ctx, rest)


def _option(name: str, told: Option, default: Any) -> click.Option:
    flag = isinstance(default, bool)
    shown = ",".join(default) if isinstance(default, tuple) else default
    return click.Option(
        [*(told.names or (f"--{name.replace('_', '-')}",)), name],
        help=told.meaning,
        type=None if flag else type(shown) if isinstance(shown, int | float) else told.kind,
        default=None if default is dataclasses.MISSING else shown,
        is_flag=flag,
        flag_value=not default if flag else None,
        show_default=not flag and bool(str(shown)),
    )


_DEFAULTS = {each.name: each.default for each in dataclasses.fields(Request)}


@click.command(
    cls=_Kernel,
    params=[_option(name, told, _DEFAULTS[name]) for name, told in options().items()],
)
@click.argument("solution", metavar="SOLUTION", type=click.Path(path_type=Path))
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=VALUES",
    help="Benchmark several sizes: M=1024,2048 or K=2^8..2^13; may be repeated.",
)
@click.option(
    "--init",
    type=click.Choice([each.value for each in Language]),
    help="Write a working solution and reference in this language into the folder SOLUTION, and stop.",
)
@click.pass_context
def kernel(
    context: click.Context, solution: Path, init: str | None, sweeps: tuple[str, ...], **given: Any
) -> None:
    """Compare the kernel in the file SOLUTION with its reference: check it, time it, say how sure that is.

    Every --NAME=VALUE that is no option is a dimension or scalar of the kernel, by its exact name: --M=1024.
    """
    values = context.meta[_VALUES]
    if init is not None:
        _init(Language(init), solution, values)
        return
    for name in ("ref", "output_dir"):
        if given[name] is None:
            raise UsageError(f"--{name.replace('_', '-')} is missing")
    request = Request(solution=solution, values=values, **given)
    if sweeps:
        _sweep(request, sweeps)
        return
    from kernelmark.kernelfile.run import carry_out

    run = carry_out(request, command=tuple(sys.argv))
    buffers = run.told["header"]["buffers"]
    if buffers and run.outcome.passed:
        shapes = ", ".join(f"{name} {shape}" for name, shape in buffers.items())
        click.echo(f"buffers: {shapes} ({run.told['header']['buffers from']})")
    click.echo(str(run.comparison))
    _look_at(run.told["remarks"])
    click.echo(f"the report is {request.output_dir / 'benchmark.md'}")
    if run.error is not None:
        raise run.error


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
        outcome = point.found["outcome"] + (" (kept from before)" if point.kept else "")
        median_ms = point.median_ms("solution")
        median = [] if median_ms is None else [f"median {format_time(median_ms * NS_PER_MS)}"]
        click.echo(f"{point.label}: {'; '.join([outcome, *median, *map(_speedup, point.found['speedups'])])}")
        _look_at(point.found["remarks"])

    try:
        run_sweep(request, parse_sweep(texts), command=tuple(sys.argv), told=tell)
    finally:
        if points:
            click.echo(f"the table and the plot are {request.output_dir / 'sweep.md'}")


def _speedup(told: dict[str, Any]) -> str:
    ratio = format_ratio(told["paired"], told["low"], told["high"])
    return f"{ratio} times as fast as {told['baseline']} ({told['verdict']})"


def _look_at(remarks: list[str]) -> None:
    for each in remarks:
        click.echo(f"before believing the numbers: {each}")
