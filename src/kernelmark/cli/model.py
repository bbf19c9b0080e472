"""``kernelmark model``, also installed as ``kernel-bench``: compiles a model file and compares it with PyTorch.

Parses, calls :mod:`kernelmark.models`, prints. ``model tune`` searches a schedule's parameters for one model.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kernelmark.cli import console
from kernelmark.cli.model_options import model_options, request_options, timing_options
from kernelmark.cli.watched import end_by_interrupt, run_watched
from kernelmark.errors import UsageError
from kernelmark.isolation import READY, Channel
from kernelmark.models.request import packed, unpacked
from kernelmark.units import format_ratio, format_time

if TYPE_CHECKING:
    from kernelmark.models import ModelRequest
    from kernelmark.models.tuning import Found, Line

__all__ = ["model", "parse_model_command"]

DEFAULT_LIMIT_S = 1800.0
"""Seconds for compiling. A net whose loop over 512 steps is unrolled takes minutes; a pass that loops has no end."""

_RUN = "run"
"""What the command for a model file is called inside the group; nobody needs to write it."""


class _Models(click.Group):
    """A group whose first word is a command of its own, or else belongs to the command for a model file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else [_RUN, *args])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.commands[_RUN]


@click.group(cls=_Models)
def model() -> None:
    """Compile a KernelBench model with MLIR, check it against PyTorch, time it next to PyTorch."""


class _ModelContext(click.Context):
    @property
    def command_path(self) -> str:
        path = super().command_path.removesuffix(f" {_RUN}")
        return path.replace("kernel-bench model", "kernel-bench")


class _ModelFile(click.Command):
    """The command for a model file, whose name the user neither writes nor reads."""

    context_class = _ModelContext

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] MODEL.py")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = "Search the parameters of a schedule; see its own --help."
        with formatter.section("More"):
            formatter.write_dl([(f"{ctx.command_path} tune MODEL.py", told)])


@model.command(_RUN, cls=_ModelFile)
@click.argument("path", metavar="MODEL.py", required=False, type=console.PATH)
@model_options
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="Where to run: cpu, or auto or cuda, where nothing is compiled by way of MLIR.",
)
@click.option(
    "--compiler",
    metavar="NAME",
    help="What is checked against PyTorch: mlir, inductor, or one that is installed.  [default: mlir on a CPU,"
    " inductor elsewhere]",
)
@click.option(
    "--output-shape",
    metavar="SHAPES",
    help="What the model must give, such as 1024x1024xf32; with commas, several.",
)
@click.option(
    "--infer-shapes", is_flag=True, help="Take inputs and arguments from the file, as is the default."
)
@click.option("--torch-compile", is_flag=True, help="Compile graph by graph, through torch.compile.")
@click.option("--benchmark", is_flag=True, help="Also time it, next to the baselines.")
@timing_options
@click.option("--gflops", metavar="EXPR", help="Operations of a call in billions; otherwise counted.")
@click.option("--bytes", metavar="EXPR", help="Bytes that a call must move; otherwise counted.")
@click.option(
    "--timeout",
    default=DEFAULT_LIMIT_S,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds that compiling may take; 0 is no limit.",
)
@click.option("--out", type=console.PATH, help="Folder to keep the run and its reports in.")
@click.option(
    "--print-original-module", "-print-original-module", is_flag=True, help="Print the module as imported."
)
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
    _within(given["timeout"], request)


def parse_model_command(
    arguments: Sequence[str], *, program: str, also: Sequence[str] = ()
) -> tuple[ModelRequest, frozenset[str]]:
    """Read a command line as this command does, run nothing, and say which options it names.

    Args:
        arguments: The words behind the program's name.
        program: What messages call the program.
        also: Options of the program's own, for near names.

    Raises:
        UsageError: no run could be made of it, or it would show something and stop.
    """
    try:
        with run.make_context(program, list(arguments)) as ctx:
            given = dict(ctx.params)
            asked = frozenset(name for name in given if _is_asked(ctx, name))
    except click.NoSuchOption as error:
        known = sorted({*also, *(option for each in run.params for option in each.opts)})
        near = difflib.get_close_matches(error.option_name, known, n=3)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"{program} --help and kernelmark model --help show all"
        )
        raise UsageError(f"{error.option_name}: there is no such option; {hint}") from None
    except click.UsageError as error:
        raise UsageError(error.format_message()) from None
    for name in ("list_schedules", "explain_schedule"):
        if given.pop(name):
            raise UsageError(
                f"--{name.replace('_', '-')} shows something and runs nothing;"
                " give it to `kernelmark model` itself"
            )
    return _request(given.pop("path") or Path("model"), given), asked


def _is_asked(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _within(limit_s: float, request: ModelRequest) -> None:
    """Run with a limit on compiling, where there is one."""
    if not math.isfinite(limit_s):
        raise UsageError(f"--timeout {limit_s}: give a number of seconds; 0 is no limit")
    asked = _is_asked(click.get_current_context(), "timeout")
    if not limit_s or not (asked or "torch" not in sys.modules):
        _run(request, lambda doing: None)
        return
    hint = "give it more with --timeout SECONDS, 0 for no limit; --print-mlir-after-all shows how far it got"
    job = packed((request, tuple(sys.argv), limit_s if asked else None))
    run_watched(_work, job, limit_s=limit_s, hint=hint)


def _work(job: str, channel: Channel) -> None:
    """Carry out a request, packed with the command line and the limit that was asked for."""
    end_by_interrupt()
    request: ModelRequest
    request, command, asked_s = unpacked(job)
    # only here may torch be asked what the best device is
    device = request.resolve_device()
    if device != "cpu" and asked_s is not None:
        raise UsageError(
            f"--timeout {asked_s:g} with --device {device}: it limits compiling by way of MLIR; leave it out"
        )
    if device != "cpu":
        channel.stage(READY)
    sys.argv[:] = command
    _run(request, lambda doing: channel.stage(READY if doing == "run" else doing))


def _request(path: Path, given: dict[str, Any]) -> ModelRequest:
    from kernelmark.models import Dump, Mode, ModelRequest, Show, parse_baselines
    from torchsched.ingress import InputSpec, parse_gflops, parse_input_shapes

    if given["infer_shapes"] and given["input_shapes"] is not None:
        raise UsageError(
            "--infer-shapes takes the inputs from the file, and --input-shapes gives them; use one"
        )
    shapes, gflops, nbytes = given["output_shape"], given["gflops"], given["bytes"]
    specs = () if shapes is None else parse_input_shapes(shapes)
    outputs = tuple(spec for spec in specs if isinstance(spec, InputSpec))
    if len(outputs) < len(specs):
        raise UsageError(f"--output-shape {shapes}: write sizes, as in 1024x1024xf32x0")
    return ModelRequest(
        path=path,
        outputs=None if shapes is None else outputs,
        mode=Mode.TORCH_COMPILE if given["torch_compile"] else Mode.IMPORT,
        baselines=parse_baselines(given["baselines"]),
        gflops=None if gflops is None else parse_gflops(gflops),
        bytes=None if nbytes is None else round(parse_gflops(nbytes, name="bytes")),
        dumps=tuple(dump for dump in Dump if given[f"dump_{dump.name.lower()}"]),
        shown=tuple(show for show in Show if given[show.replace("-", "_")]),
        **{name: given[name] for name in ("compiler", "device", "benchmark", "iterations", "seed", "out")},
        **request_options(given),
    )


def _run(request: ModelRequest, on_step: Callable[[str], object]) -> None:
    from kernelmark.models import print_model

    print_model(request, click.echo, command=tuple(sys.argv), on_step=on_step)


# --- tune


@model.command()
@click.argument("path", metavar="MODEL.py", type=console.PATH)
@model_options
@click.option(
    "--search",
    multiple=True,
    metavar="NAME[=VALUES]",
    help="Search this parameter, over all of its choices or over VALUES such as 4,6,8; may be repeated."
    " Otherwise every parameter that has choices and no --param.",
)
@click.option("--candidates", type=int, help="How many to try, the default among them.  [default: 32]")
@click.option(
    "--budget",
    "budget_s",
    type=float,
    help="Seconds for the search, without the confirmation.  [default: 600]",
)
@click.option(
    "--limit",
    "limit_s",
    type=float,
    help="Seconds to compile and check one candidate, and to measure it.  [default: 60]",
)
@click.option("--seed", default=0, show_default=True, help="What the order of the candidates is drawn with.")
@click.option("--write", type=console.PATH, help="The descriptor; otherwise tuned.yaml in --out.")
@click.option("--out", type=console.PATH, help="Folder to keep the search in.")
@click.option("--resume", is_flag=True, help="Go on with the search in --out.")
def tune(path: Path, **given: Any) -> None:
    """Search the parameters of a schedule for MODEL.py, and write the best ones as a descriptor."""
    from kernelmark.models import ModelRequest
    from kernelmark.models.tuning import TuneRequest, tune_model

    numbers = {name: given[name] for name in ("candidates", "budget_s", "limit_s") if given[name] is not None}
    request = TuneRequest(
        model=ModelRequest(path=path, **request_options(given)),
        search=_searched(given["search"]),
        **{name: given[name] for name in ("seed", "write", "out", "resume")},
        **numbers,
    )
    _show(tune_model(request, command=tuple(sys.argv), tell=click.echo))


def _searched(texts: Sequence[str]) -> dict[str, str | None]:
    searched: dict[str, str | None] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name:
            raise UsageError(f"--search {text}: write NAME, or NAME=VALUES such as mr=4,6,8")
        if name in searched:
            raise UsageError(f"--search {name} is given twice; name all of its values in one")
        searched[name] = values if equals else None
    return searched


def _show(found: Found) -> None:
    from kernelmark.models.tuning.run import verdict

    columns = ("", "candidate", "check", "time", "time / default's", "what became of it")
    click.echo()
    console.echo_table(columns, map(_cells, sorted(found.lines, key=_place)))
    click.echo(f"\n{verdict(found)}")
    click.echo(
        f"the descriptor is {found.descriptor}: kernelmark model MODEL.py --pipeline {found.descriptor}"
    )
    click.echo(f"the report is {found.folder / 'report.md'}")


def _place(line: Line) -> tuple[bool, float]:
    """Sort by time, those without one last."""
    timing = line.row.timing
    return timing is None, timing.device_busy.median_ns if timing else line.candidate.number


def _cells(line: Line) -> tuple[str, ...]:
    row = line.row
    busy = format_time(row.timing.device_busy.median_ns, 3) if row.timing else ""
    ratio = format_ratio(row.ratio.value, row.ratio.low, row.ratio.high) if row.ratio else ""
    return str(line.candidate.number), line.candidate.label, row.check.value, busy, ratio, line.fate
