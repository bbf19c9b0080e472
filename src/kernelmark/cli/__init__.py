"""The command ``kernelmark``: finds the subcommand, and turns what it raises into a message and an exit code.

A subcommand's module is imported when it is called or asked for its own help, so that ``kernelmark --help``
imports nothing but click. A subcommand raises, and leaves printing errors and exiting to this module.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from kernelmark.cli.exit_codes import ExitCode, exit_code_for
from kernelmark.errors import KernelmarkError

__all__ = ["kernel_bench", "main"]


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""A full, read-only or broken disk below stdout, or wherever a command writes: no bug of this program."""

_COMMANDS = {
    "audit": ("machine", "Read known calls with every instrument here."),
    "calibrate": ("machine", "Measure ceilings and instruments."),
    "doctor": ("machine", "Say what this machine can measure, and why not."),
    "kernel": ("kernel", "Compare a kernel file with its reference."),
    "kernelbench": ("kernelbench", "Run KernelBench's kernels, or our own."),
    "model": ("model", "Compile a model and compare it with PyTorch."),
    "ops": ("ops", "List, show and validate the ops of a library's manifest."),
    "merge": ("merge", "Put several runs into one."),
    "report": ("report", "Render a stored run again."),
}
"""Each subcommand's module, and its line in the list of subcommands."""


class _Program(click.Group):
    """A group that loads its commands late and has this program's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"kernelmark.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS:
            from kernelmark.text import suggestion

            raise click.UsageError(
                f"there is no command {args[0]!r}; {suggestion(args[0], _COMMANDS, there_are='commands')}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in _COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the program and exit with its code; with ``standalone_mode`` off, click's own behaviour."""
        prog_name = prog_name or "kernelmark"
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        # a question mark for what the terminal's encoding lacks: half of the symbols in ISO 8859-1
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="replace")
        arguments = list(sys.argv[1:] if args is None else args)
        self._main_shell_completion(extra, prog_name, complete_var)
        sys.exit(_run(self, arguments, prog_name, extra))


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kernelmark", prog_name="kernelmark")
@click.option(
    "--debug",
    is_flag=True,
    envvar="KERNELMARK_DEBUG",
    help="Show the traceback of an error; the same with KERNELMARK_DEBUG=1.",
)
def main(debug: bool) -> None:
    """Check compute kernels, time them fairly, and say how sure the result is."""


def kernel_bench() -> None:
    """Run ``kernelmark model`` under the name ``kernel-bench``, with this process's arguments."""
    main.main(["model", *sys.argv[1:]], prog_name="kernel-bench")


def _run(program: _Program, arguments: list[str], prog_name: str, extra: dict[str, Any]) -> int:
    context, code = None, int(ExitCode.OK)
    try:
        try:
            with program.make_context(prog_name, arguments, **extra) as context:
                program.invoke(context)
        except click.exceptions.Exit as end:
            code = end.exit_code
        sys.stdout.flush()  # here, where a closed pipe or a full disk still has an exit code
    except click.ClickException as error:
        return _not_as_asked(error)
    except KernelmarkError as error:
        if context is not None and context.params["debug"]:
            traceback.print_exc()
        click.echo(f"error: {error}", err=True)
        return exit_code_for(error)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _undelivered(ExitCode.PIPE_CLOSED)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            return _unforeseen(error)
        click.echo(f"error: {error.strerror}; free some space, or write elsewhere", err=True)
        return _undelivered(ExitCode.ENVIRONMENT)
    except Exception as error:  # noqa: BLE001 - the outermost frame: a bug gets its own exit code
        return _unforeseen(error)
    return code


def _not_as_asked(error: click.ClickException) -> int:
    """Say what is wrong with the command line in this program's form, which click's own is not."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # nothing was asked for, so the help is the answer
        return error.exit_code
    click.echo(f"error: {error.format_message()}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"see {error.ctx.command_path} --help", err=True)
    return error.exit_code


def _unforeseen(error: Exception) -> ExitCode:
    ran_out = isinstance(error, MemoryError)
    if not ran_out and "torch" in sys.modules:
        from kernelmark.device.memory import is_out_of_memory

        ran_out = is_out_of_memory(error)
    if ran_out:
        click.echo("error: memory ran out; end what else holds it, or ask for smaller sizes", err=True)
        return ExitCode.ENVIRONMENT
    traceback.print_exc()
    click.echo("this is a bug in kernelmark; please report it with the traceback above", err=True)
    return ExitCode.BUG


def _undelivered(code: ExitCode) -> ExitCode:
    """Give ``code``, and let the interpreter's own last flush go nowhere: it would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
