"""``kernelmark model``, also installed as ``kernel-bench``: compiles a model file and compares it with PyTorch.

Parses, calls :mod:`kernelmark.models`, prints. ``tune`` after ``model`` is a command of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kernelmark.cli.model_options import model_options, request_options
from kernelmark.cli.tune import tune
from kernelmark.cli.watched import COMPILED, can_be_watched, run_watched
from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.units import format_time

if TYPE_CHECKING:
    from kernelmark.models import ModelRequest, ModelRun

__all__ = ["model"]

DEFAULT_LIMIT_S = 1800.0
"""Seconds for compiling. A net whose loop over 512 steps is unrolled takes minutes; a pass that loops has no end."""

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
@model_options
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="Where to run: cpu, or auto or cuda, where nothing is compiled by way of MLIR.",
)
@click.option("--output-shape", metavar="SHAPE", help="What the model must give, such as 1024x1024xf32.")
@click.option(
    "--infer-shapes", is_flag=True, help="Take inputs and arguments from the file, as is the default."
)
@click.option("--torch-compile", is_flag=True, help="Compile graph by graph, through torch.compile.")
@click.option("--benchmark", is_flag=True, help="Also time it, next to the baselines.")
@click.option("--iterations", default=100, show_default=True, help="Samples of each implementation.")
@click.option(
    "--baselines",
    default="all",
    show_default=True,
    help="What to time it next to: eager, inductor, all, none.",
)
@click.option("--gflops", metavar="EXPR", help="Operations of a call in billions; otherwise counted.")
@click.option("--bytes", "nbytes", metavar="EXPR", help="Bytes that a call must move; otherwise counted.")
@click.option("--seed", default=0, show_default=True, help="What parameters and inputs are drawn with.")
@click.option(
    "--timeout",
    default=DEFAULT_LIMIT_S,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds that compiling may take; 0 is no limit.",
)
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
    _within(given["timeout"], request, given)


def _within(limit_s: float, request: ModelRequest, given: dict[str, Any]) -> None:
    """Run with a limit on compiling, where there is one and a child process can be had."""
    if not math.isfinite(limit_s):
        raise UsageError(f"--timeout {limit_s}: give a number of seconds; 0 is no limit")
    asked = click.get_current_context().get_parameter_source("timeout") is ParameterSource.COMMANDLINE
    if request.device != "cpu" or not limit_s or not (asked or can_be_watched()):
        _run(request, given, lambda doing: None)
        return
    hint = "give it more with --timeout SECONDS, 0 for no limit; --print-mlir-after-all shows how far it got"

    def work(tell: Callable[[str], None]) -> None:
        _run(request, given, lambda doing: tell(COMPILED if doing == "run" else doing))

    run_watched(work, limit_s=limit_s, hint=hint)


def _request(path: Path, given: dict[str, Any]) -> ModelRequest:
    from kernelmark.models import Dump, Mode, ModelRequest, parse_baselines
    from torchsched.ingress import parse_gflops, parse_output_shape

    if given["infer_shapes"] and given["input_shapes"] is not None:
        raise UsageError(
            "--infer-shapes takes the inputs from the file, and --input-shapes gives them; use one"
        )
    output, gflops, nbytes = (given[name] for name in ("output_shape", "gflops", "nbytes"))
    return ModelRequest(
        path=path,
        output=None if output is None else parse_output_shape(output),
        mode=Mode.TORCH_COMPILE if given["torch_compile"] else Mode.IMPORT,
        baselines=parse_baselines(given["baselines"]),
        gflops=None if gflops is None else parse_gflops(gflops),
        bytes=None if nbytes is None else round(parse_gflops(nbytes, name="bytes")),
        dumps=tuple(dump for dump in Dump if given[f"dump_{dump.name.lower()}"]),
        **{name: given[name] for name in _PLAIN},
        **request_options(given),
    )


_PLAIN = ("device", "benchmark", "iterations", "seed", "out")
"""The options that the request takes under the same name."""


def _run(request: ModelRequest, given: dict[str, Any], on_step: Callable[[str], object]) -> None:
    from kernelmark.cli.modules import ModulePrinter
    from kernelmark.models import run_model

    printer = ModulePrinter(
        original=given["print_original_module"],
        optimised=given["print_optimized_module"],
        after_all=given["print_mlir_after_all"],
    )
    try:
        found = run_model(
            request,
            command=tuple(sys.argv),
            tell=printer.line,
            observer=printer if printer.wanted else None,
            on_step=on_step,
        )
    except KernelmarkError as error:
        printer.finish()
        if (comparison := getattr(error, "comparison", None)) is not None:
            click.echo(str(comparison))
        raise
    _show(found)


def _show(found: ModelRun) -> None:
    """Write the lines that scripts read, then the table."""
    from kernelmark.models.tolerances import figure

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
    if stages:
        click.echo(f"Compiling took: {stages}")
    if found.folder is not None:
        click.echo(f"the report is {found.folder / 'report.md'}")


model.add_command(tune)
