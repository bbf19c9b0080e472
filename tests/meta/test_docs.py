"""What README.md and docs/ show works: snippets compile or run; commands, options and links exist."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from kernelmark import cli
from tests.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = {"bash", "console", "sh", "shell"}
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
RUN_MARK = "<!-- run -->"


@dataclass(frozen=True)
class Snippet:
    """One fenced block; it is run if its info line says ``python run`` or RUN_MARK stands right before it."""

    path: Path
    row: int
    language: str
    run: bool
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.row}"


def _snippets(path: Path) -> Iterator[Snippet]:
    document = path.read_text()
    for found in FENCE.finditer(document):
        before = document[: found.start()]
        language, *words = found["info"].split() or [""]
        run = "run" in words or before.rstrip().endswith(RUN_MARK)
        yield Snippet(path, before.count("\n") + 1, language, run, found["text"])


def _commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the words of every command in the document, with its place, without prompts and comments."""
    for snippet in _snippets(path):
        if snippet.language in SHELLS:
            for line in snippet.text.replace("\\\n", " ").splitlines():
                if words := line.removeprefix("$ ").partition(" #")[0].split():
                    yield str(snippet), words
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", path.read_text())):
        if words := code.split():
            yield str(path.relative_to(ROOT)), words


RUN = [one for path in DOCUMENTS for one in _snippets(path) if one.language == "python" and one.run]
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


@every_document
def test_every_python_snippet_of_the_document_compiles(path: Path) -> None:
    for snippet in _snippets(path):
        if snippet.language == "python":
            compile(snippet.text, str(snippet), "exec")


@pytest.mark.parametrize("snippet", RUN, ids=str)
def test_a_snippet_that_is_marked_to_run_runs(snippet: Snippet, tmp_path: Path) -> None:
    program, environment = tmp_path / "snippet.py", {**os.environ, "PYTHONPATH": str(ROOT)}
    program.write_text(snippet.text)
    if snippet is RUN[0]:
        command = [sys.executable, str(program)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    else:
        done = run_forked(str(program), cwd=tmp_path, env=environment)
    assert done.returncode == 0, f"{snippet}\n{done.stdout}{done.stderr}"


def _unknown_word(words: list[str]) -> str | None:
    """Walk ``kernelmark a b --option`` down the command tree; give the first word that is not there."""
    command: click.Command = cli.main
    context = click.Context(command, info_name="kernelmark")
    options = {"--help"}
    for word in itertools.takewhile(lambda word: word != "...", words):
        default = command.get_command(context, "") if isinstance(command, click.Group) else None
        for parameter in (*command.params, *(default.params if default else ())):
            options.update(parameter.opts, parameter.secondary_opts)
        if word.startswith("-"):
            if word.partition("=")[0] not in options and not _takes_any_name(command, word):
                return word
        elif isinstance(command, click.Group):
            below = command.get_command(context, word)
            if below is None:
                return word
            command = below
    return None


def _takes_any_name(command: click.Command, word: str) -> bool:
    """Whether ``word`` is a dimension, which ``kernelmark kernel`` takes under any name of its kernel's."""
    return command.name == "kernel" and re.fullmatch(r"--[A-Za-z_]+=.*", word) is not None


@every_document
def test_every_kernelmark_command_in_the_document_exists(path: Path) -> None:
    asked = [(place, words[1:]) for place, words in _commands(path) if words[0] == "kernelmark"]
    unknown = [(place, _unknown_word(words)) for place, words in asked]
    assert not [f"{place}: kernelmark has no {word}" for place, word in unknown if word]


@every_document
def test_every_make_target_in_the_document_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = [(place, word) for place, words in _commands(path) if words[0] == "make" for word in words[1:]]
    assert not [f"{place}: make {word}" for place, word in asked if "=" not in word and word not in targets]


@every_document
def test_every_relative_link_in_the_document_leads_somewhere(path: Path) -> None:
    targets = [found["target"].partition("#")[0] for found in LINK.finditer(FENCE.sub("", path.read_text()))]
    local = [target for target in targets if target and "://" not in target]
    assert not [target for target in local if not (path.parent / target).exists()]


def test_every_page_is_listed_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / found["target"]).resolve() for found in LINK.finditer(index.read_text())}
    assert not {path.name for path in DOCUMENTS if path != index} - {path.name for path in listed}


def test_an_unknown_command_or_option_is_noticed() -> None:
    assert _unknown_word(["no-such-command"]) == "no-such-command"
    assert _unknown_word(["--no-such-option"]) == "--no-such-option"
    assert _unknown_word(["--help"]) is None
