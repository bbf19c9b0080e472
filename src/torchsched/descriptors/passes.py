"""Pass text as MLIR reads it: lists and options in its own spelling, and each pass known to it.

The only module of the descriptors that asks torch-mlir anything, and only in :func:`check_passes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kernelmark.text import suggestion
from torchsched.bindings import bindings
from torchsched.descriptors.parameters import Value, written
from torchsched.descriptors.steps import PassStep, Step
from torchsched.failures import captured_stderr

__all__ = ["check_passes", "plain_lists", "with_options"]

_LIST = re.compile(r"\s*=\s*\[([^\[\]{}]*)\]")
_NO_PASS = re.compile(r"'([^']*)' does not refer to a registered pass")
_NO_OPTION = re.compile(r"no such option (\S+)")
_NOT_HERE = re.compile(r"restricted to '([\w.]+)'")
_OPTIONS = re.compile(r"\{[^}]*\}")
_NAME = re.compile(r"[a-z][\w-]*")


def plain_lists(text: str) -> str:
    """Write ``[1, 8]`` in an option as MLIR's parser wants it, ``1,8``: brackets and spaces are an error to it."""
    return _LIST.sub(lambda match: "=" + re.sub(r"\s+", "", match[1]), text)


def with_options(name: str, options: Mapping[str, Value]) -> str:
    """Write a pass with its options: ``name{key=value other=1,8}``."""
    if not options:
        return name
    return f"{name}{{{' '.join(f'{key}={written(value)}' for key, value in options.items())}}}"


def check_passes(steps: Iterable[Step]) -> None:
    """Ask MLIR whether it knows each pass and its options; nothing is run.

    Raises:
        ScheduleError: one is unknown or malformed, with file, line and near names.
        UnavailableError: torch-mlir is not installed.
    """
    for step in steps:
        if isinstance(step, PassStep) and (problem := _problem(step.text)) is not None:
            raise step.origin.place.error(f"{problem}{step.origin.included}")


@lru_cache(maxsize=1024)
def _problem(text: str) -> str | None:
    """Say what MLIR has against a pass; each text is parsed once in a process."""
    said = _parse(text)
    if said is None:
        return None
    if (unknown := _NO_PASS.search(said)) is not None:
        hint = suggestion(unknown[1], _used_names(), there_are="passes that the shipped schedules use")
        return f"MLIR has no pass {unknown[1]!r}; {hint}"
    if (option := _NO_OPTION.search(said)) is not None:
        name = text.partition("{")[0].rpartition("(")[2].strip()
        hint = suggestion(option[1], _option_names(name), there_are=f"options of {name}")
        return f"pass {name!r} has no option {option[1]!r}; {hint}"
    if (anchor := _NOT_HERE.search(said)) is not None:
        return f"pass {text!r} does not run on a module; write {anchor[1]}({text})"
    return f"MLIR cannot read the pass {text!r}: {' '.join(said.split())}"


def _parse(text: str) -> str | None:
    """Give what MLIR says of the text; ``None`` where it takes it."""
    with captured_stderr() as stderr, _context():
        try:
            bindings("passmanager").PassManager.parse(f"builtin.module({text})")
        except ValueError as error:
            # what is wrong with an option's value goes to the descriptor, not into the exception
            return f"{error} {stderr.take()}"
        return None


def _option_names(name: str) -> list[str]:
    """List a pass's options, which MLIR prints with their defaults."""
    with _context():
        try:
            shown = str(bindings("passmanager").PassManager.parse(f"builtin.module({name})"))
        except ValueError:
            return []
    return re.findall(r"([\w-]+)=", shown)


@lru_cache(maxsize=1)
def _context() -> Any:
    """Make the context that pass text is parsed in, once: one takes 25 ms, and a schedule has 40 passes."""
    bindings("dialects.torch")  # torch-mlir's own passes are known from then on
    return bindings("ir").Context()


@lru_cache(maxsize=1)
def _used_names() -> tuple[str, ...]:
    """List the passes that the shipped schedules use; MLIR itself gives no list of what it has."""
    from torchsched.descriptors.lookup import SHIPPED
    from torchsched.descriptors.schema import read_descriptor

    texts = [
        text
        for path in SHIPPED.rglob("*.yaml")
        for step in read_descriptor(path)[1].pipeline
        for text in (step.pass_, *(step.bundle or ()))
        if text is not None
    ]
    names = {name for text in texts for name in _NAME.findall(_OPTIONS.sub(" ", text))}
    return tuple(sorted(names - {"func"}))
