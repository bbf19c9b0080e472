"""``kernelmark model``, also installed as ``kernel-bench``: compiles a model file and compares it with PyTorch.

Parses, calls :mod:`kernelmark.mlir.front`, prints. ``tune`` and other words after ``model`` are commands of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.records import Cache
from kernelmark.units import format_time

if TYPE_CHECKING:
    from kernelmark.mlir.front import ModelRequest, ModelRun

__all__ = ["model"]

_RUN = "run"
"""What the command for a model file is called inside the group; nobody needs to write it."""


class _Models(click.Group):
    """A group whose first word is a command of its own, or else belongs to the command for a model file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else [_RUN, *args])

    @property
    def default(self) -> click.Command:
        """The command for a model file."""
        return self.commands[_RUN]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.default


@click.group(cls=_Models)
def model() -> None:
    """Compile a KernelBench model with MLIR, check it against PyTorch, time it next to PyTorch."""


class _ModelFile(click.Command):
    """The command for a model file, whose name the user does not write."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        program = ctx.command_path.removesuffix(f" {_RUN}").replace("kernel-bench model", "kernel-bench")
        formatter.write_usage(program, "[OPTIONS] MODEL.py")


@model.command(_RUN, cls=_ModelFile)
@click.argument("path", metavar="MODEL.py", required=False, type=click.Path(path_type=Path))
@click.option(
    "--pipeline",
    multiple=True,
    metavar="NAME|FILE",
    help="Schedule, by its name or its file; may be repeated. Otherwise 'default'.",
)
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the schedule."
)
@click.option(
    "--schedules",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder of schedules of your own.",
)
@click.option("--target", help="Architecture to look schedules up for; otherwise this machine's.")
@click.option("--feature", help="Vector feature to look schedules up for (avx512, ...), or none.")
@click.option("--threads", type=int, help="Threads of the code and of PyTorch; otherwise one a core.")
@click.option("--dtype", help="Convert the model and its inputs: f32, bf16, f16, f64.")
@click.option("--input-shapes", metavar="SHAPES", help="Inputs such as 1024x1024xf32xrnd,1024x1024xf32xid.")
@click.option("--output-shape", metavar="SHAPE", help="What the model must give, such as 1024x1024xf32.")
@click.option("--init-args", metavar="LIST", help="What Model is made with, such as [64, (3, 3)].")
@click.option(
    "--infer-shapes", is_flag=True, help="Take inputs and arguments from the file, as is the default."
)
@click.option("--torch-compile", is_flag=True, help="Compile graph by graph, through torch.compile.")
@click.option("--benchmark", is_flag=True, help="Also time it, next to the baselines.")
@click.option("--iterations", default=100, show_default=True, help="Samples of each implementation.")
@click.option(
    "--cache",
    type=click.Choice([each.value for each in Cache]),
    default=Cache.COLD.value,
    show_default=True,
    help="Whether the caches are flushed before each timed call.",
)
@click.option(
    "--baselines",
    default="all",
    show_default=True,
    help="What to time it next to: eager, inductor, all, none.",
)
@click.option("--gflops", metavar="EXPR", help="Operations of a call in billions; otherwise counted.")
@click.option("--bytes", "nbytes", metavar="EXPR", help="Bytes that a call must move; otherwise counted.")
@click.option("--tolerance", type=float, help="RMS error over the answer's; otherwise by the element type.")
@click.option("--atol", type=float, help="With --rtol: compare each element by itself.")
@click.option("--rtol", type=float, help="With --atol: compare each element by itself.")
@click.option("--no-second-draw", is_flag=True, help="Check on one draw of the inputs only.")
@click.option("--seed", default=0, show_default=True, help="What parameters and inputs are drawn with.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to keep the run and its reports in.")
@click.option("--print-original-module", is_flag=True, help="Print the module as imported.")
@click.option("--print-optimized-module", is_flag=True, help="Print the module as compiled.")
@click.option("--print-mlir-after-all", is_flag=True, help="Print the module after every step.")
@click.option("--dump-assembly", is_flag=True, help="Write MODEL.s into the working folder.")
@click.option("--dump-object", is_flag=True, help="Write MODEL.o into the working folder.")
@click.option("--list-schedules", is_flag=True, help="List the schedules there are, and stop.")
@click.option("--explain-schedule", is_flag=True, help="Show what would run, in order, and stop.")
def run(path: Path | None, list_schedules: bool, explain_schedule: bool, **given: Any) -> None:
    """Compile MODEL.py (class Model, get_inputs, get_init_inputs) and compare it with PyTorch."""
    if list_schedules:
        from kernelmark.cli.schedules import show_list

        show_list(given["roots"], target=given["target"], feature=given["feature"], threads=given["threads"])
        return
    request = _request(path or Path("model"), given)
    if explain_schedule:
        from kernelmark.cli.schedules import show_explained

        show_explained(request)
        return
    if path is None:
        raise UsageError("MODEL.py is missing; name a file with a class Model, or ask for --list-schedules")
    _run(request, given)


def _request(path: Path, given: dict[str, Any]) -> ModelRequest:
    from kernelmark.mlir.building import DEFAULT_PIPELINE
    from kernelmark.mlir.elements import Element
    from kernelmark.mlir.front import Dump, Mode, ModelRequest, parse_baselines
    from kernelmark.mlir.front.tolerances import Asked
    from kernelmark.mlir.ingress import parse_gflops, parse_init_args, parse_input_shapes, parse_output_shape

    if given["infer_shapes"] and given["input_shapes"] is not None:
        raise UsageError(
            "--infer-shapes takes the inputs from the file, and --input-shapes gives them; use one"
        )
    shapes, output, gflops, nbytes = (
        given[name] for name in ("input_shapes", "output_shape", "gflops", "nbytes")
    )
    return ModelRequest(
        path=path,
        pipeline=given["pipeline"] or (DEFAULT_PIPELINE,),
        values=_values(given["params"]),
        roots=given["roots"],
        element=None if given["dtype"] is None else Element.parse(given["dtype"]),
        inputs=None if shapes is None else parse_input_shapes(shapes),
        output=None if output is None else parse_output_shape(output),
        init_args=parse_init_args(given["init_args"]),
        mode=Mode.TORCH_COMPILE if given["torch_compile"] else Mode.IMPORT,
        cache=Cache(given["cache"]),
        baselines=parse_baselines(given["baselines"]),
        gflops=None if gflops is None else parse_gflops(gflops),
        bytes=None if nbytes is None else round(parse_gflops(nbytes)),
        tolerance=Asked(given["tolerance"], given["atol"], given["rtol"]),
        second_draw=not given["no_second_draw"],
        dumps=tuple(dump for dump in Dump if given[f"dump_{dump.name.lower()}"]),
        **{name: given[name] for name in _PLAIN},
    )


_PLAIN = ("target", "feature", "threads", "benchmark", "iterations", "seed", "out")
"""The options that the request takes under the same name."""


def _values(texts: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--param {text}: write NAME=VALUE, such as mr=8")
        if name in values:
            raise UsageError(f"--param {name} is given twice: {values[name]} and {value}")
        values[name] = value
    return values


def _run(request: ModelRequest, given: dict[str, Any]) -> None:
    from kernelmark.cli.modules import ModulePrinter
    from kernelmark.mlir.front import run_model

    printer = ModulePrinter(
        original=given["print_original_module"],
        optimised=given["print_optimized_module"],
        after_all=given["print_mlir_after_all"],
    )
    try:
        found = run_model(
            request, command=tuple(sys.argv), tell=printer.line, observer=printer if printer.wanted else None
        )
    except KernelmarkError as error:
        printer.finish()
        if (comparison := getattr(error, "comparison", None)) is not None:
            click.echo(str(comparison))
        raise
    _show(found)


def _show(found: ModelRun) -> None:
    """Write the lines that scripts read, then the table."""
    from kernelmark.mlir.front.tolerances import figure

    timing = found.ours.timing
    if timing is not None:
        click.echo(f"{timing.latency.samples} runs: {timing.latency.mean_ns / 1e9!r} seconds")
    click.echo("Success: The output of the compiled model matches the reference output.")
    click.echo(f"Tolerance: {figure(found.tolerance)}")
    if timing is not None and found.work is not None and found.work.gflops is not None:
        click.echo(f"\nPerformance: {found.work.flops / timing.latency.mean_ns:.2f} GFLOPS")
    if timing is not None:
        click.echo(f"\n{found.comparison}")
    stages = ", ".join(f"{stage} {format_time(seconds * 1e9, 3)}" for stage, seconds in found.seconds.items())
    click.echo(f"Compiling took: {stages}")
    if found.folder is not None:
        click.echo(f"the report is {found.folder / 'report.md'}")
