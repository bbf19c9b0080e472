"""The program as a user runs it: what it imports, what it prints, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kernelmark import cli, errors
from kernelmark.cli.exit_codes import ExitCode, exit_code_for
from kernelmark.errors import KernelmarkError

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "data" / "run_v1"
# Python buffers what goes to a pipe or a file, and so it does for most users.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def kernelmark(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelmark", *map(str, arguments)]
    facts: dict = {"capture_output": True, "text": True, "check": False, "env": BUFFERED, **options}
    return subprocess.run(command, **facts)


_WITH_A_COMMAND = """
import signal, sys, types
import click
from kernelmark import cli, errors

def body():
    {body}

module = types.ModuleType("kernelmark.cli.a_module")
module.act = click.command("act")(body)
sys.modules[module.__name__] = module
cli._COMMANDS["act"] = ("a_module", "Act.")
cli.main()
"""


def act(body: str, *before: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the real program with one more subcommand, whose body is ``body``."""
    return subprocess.run(
        [sys.executable, "-c", _WITH_A_COMMAND.format(body=body), *before, "act"],
        capture_output=True,
        text=True,
        check=False,
        env={**BUFFERED, **(env or {})},
    )


# --- what it imports --------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["nope"]])
def test_the_program_alone_imports_nothing_heavy(arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kernelmark", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "click.core" in imported
    packages = {name.partition(".")[0] for name in imported}
    assert not packages & {"torch", "numpy", "triton", "pydantic", "pydantic_core", "rich", "yaml"}
    assert not {name for name in imported if name.startswith(("kernelmark.report", "kernelmark.records"))}


def test_the_report_command_imports_no_framework():
    program = (
        "import sys; from kernelmark import cli\n"
        f"try: cli.main(['report', {str(RUN)!r}, '--format', 'csv'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "triton", "numpy"} & set(done.stderr.split())


# --- what it says -----------------------------------------------------------------------------------


def test_help_lists_the_subcommands_with_a_line_each():
    done = kernelmark("--help")
    assert done.returncode == ExitCode.OK
    for name in ("ops", "report"):
        assert re.search(rf"^  {name} +\w.*\.$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", list(cli._COMMANDS))
def test_every_listed_subcommand_is_there_and_explains_itself(name: str):
    command = cli.main.get_command(click.Context(cli.main), name)
    assert isinstance(command, click.Command)
    assert command.help
    done = kernelmark(name, "-h")
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert done.stdout.startswith(f"Usage: kernelmark {name}")


def test_the_version_is_the_installed_one():
    done = kernelmark("--version")
    assert re.fullmatch(r"kernelmark, version \d+\.\d+\.\d+\S*\n", done.stdout)


# --- how it ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Usage: kernelmark"),
        (["nope"], "there is no command 'nope'; commands: audit, calibrate, doctor, "),
        (["modle"], "there is no command 'modle'; did you mean 'model'? commands: "),
        (["--nope"], "No such option"),
        (["report"], "Missing argument 'RUN'"),
        (["report", "a", "b"], "unexpected extra argument"),
        (["report", "a", "--format", "pdf"], "'pdf' is not one of 'console', 'markdown', 'json', 'csv'"),
        (["model", "m.py", "--nope"], "No such option"),
    ],
)
def test_what_cannot_be_run_as_asked_ends_with_2_and_says_why(arguments: list[str], told: str):
    done = kernelmark(*arguments)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert told in done.stderr
    if arguments:  # without any the help is the answer
        command = " ".join(["kernelmark", *(word for word in arguments[:1] if word in cli._COMMANDS)])
        message, hint = done.stderr.splitlines()
        assert message.startswith("error: ")
        assert hint == f"see {command} --help"


ERRORS = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, KernelmarkError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_the_exit_code_of_its_family(kind: type[KernelmarkError]):
    code = exit_code_for(kind("what was asked, what was found"))
    if issubclass(kind, errors.UsageError):
        assert code is ExitCode.USAGE
    elif issubclass(kind, errors.UnavailableError | errors.RecordError):
        assert code is ExitCode.ENVIRONMENT
    elif issubclass(kind, errors.CrashedError | errors.ModelError):
        assert code is ExitCode.CRASHED
    else:
        assert code is ExitCode.FAILED


def test_an_error_of_someone_elses_making_has_the_code_of_the_class_it_extends():
    class Mine(errors.ConfigError):
        pass

    assert exit_code_for(Mine("x")) is ExitCode.USAGE


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("UsageError", 2),
        ("UnavailableError", 3),
        ("RecordError", 3),
        ("VerificationError", 1),
        ("TimingError", 1),
    ],
)
def test_an_error_is_one_line_on_stderr_without_a_traceback(raised: str, code: int):
    done = act(f"raise errors.{raised}('no such thing; do that')")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "error: no such thing; do that\n")


def test_debug_shows_the_traceback_and_keeps_the_message_and_the_code():
    body = "raise errors.UsageError('no such thing')"
    for done in (act(body, "--debug"), act(body, env={"KERNELMARK_DEBUG": "1"})):
        assert done.returncode == ExitCode.USAGE
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.endswith("\nerror: no such thing\n")


def test_a_bug_shows_its_traceback_and_ends_with_70():
    done = act("raise ZeroDivisionError('a slip')")
    assert done.returncode == ExitCode.BUG == 70
    assert "ZeroDivisionError: a slip" in done.stderr
    assert "this is a bug in kernelmark" in done.stderr


@pytest.mark.parametrize(
    "body", ["raise MemoryError", "import torch; torch.empty(1 << 60, dtype=torch.uint8)"]
)
def test_memory_that_runs_out_is_no_bug(body: str):
    done = act(body)
    assert (done.returncode, done.stdout) == (ExitCode.ENVIRONMENT, "")
    assert done.stderr == "error: memory ran out; end what else holds it, or ask for smaller sizes\n"


def test_a_file_error_that_nobody_foresaw_is_a_bug_too():
    done = act("open('/nowhere/at/all')")
    assert done.returncode == ExitCode.BUG
    assert "FileNotFoundError" in done.stderr


def test_the_keyboard_ends_it_with_130_and_no_traceback():
    body = "print('ready', flush=True); __import__('time').sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_A_COMMAND.format(body=body), "act"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
    assert process.returncode == ExitCode.INTERRUPTED == 130


@pytest.mark.parametrize("arguments", [["--help"], ["report", str(RUN), "--format", "json"]])
def test_a_reader_that_stops_reading_is_told_nothing(arguments: list[str]):
    reading, writing = os.pipe()
    os.close(reading)
    done = kernelmark(*arguments, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.PIPE_CLOSED, "")


def test_output_that_is_only_printed_is_delivered_before_the_program_ends():
    program = _WITH_A_COMMAND.format(body="print('some output')")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, "act"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=BUFFERED,
        )
    assert (done.returncode, done.stderr) == (
        ExitCode.ENVIRONMENT,
        "error: No space left on device; free some space, or write elsewhere\n",
    )


def test_a_subcommand_chooses_its_own_code():
    assert act("click.get_current_context().exit(4)").returncode == ExitCode.CRASHED
    assert act("raise click.Abort").returncode == ExitCode.INTERRUPTED


# --- the page that promises it ----------------------------------------------------------------------


def test_the_page_on_exit_codes_lists_each_code_once_with_its_number():
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    listed = re.findall(r"^\| `(\d+)` \| (\w+)", page, re.MULTILINE)
    assert sorted((int(code), name) for code, name in listed) == [
        (code.value, code.name.lower().replace("_", "-").partition("-")[0]) for code in sorted(ExitCode)
    ]
