"""The steps of a resolved schedule: every name is filled in, and each knows the file and line that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.files.source import Place
from torchsched.descriptors.conditions import Condition
from torchsched.descriptors.parameters import Value, written

__all__ = ["Origin", "PassStep", "Step", "TransformFileStep", "TransformStep"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a step is written, and through which includes it came."""

    place: Place
    chain: tuple[Place, ...] = ()
    """The include steps that led to its file, the outermost first."""

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.place.path}:{self.place.line}"

    @property
    def included(self) -> str:
        """How it was included, for the end of a message; blank for a step of the file that was asked for."""
        return "".join(f"\n  included from {each.path}:{each.line}" for each in reversed(self.chain))


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass, or one nested pipeline, as MLIR's pass manager reads it."""

    text: str
    origin: Origin
    when: tuple[Condition, ...] = ()

    kind = "pass"

    @property
    def name(self) -> str:
        """What the step is called in messages and printed stages."""
        return self.text


@dataclass(frozen=True, slots=True)
class TransformStep:
    """A Python function that rewrites the module: ``function(module, *, target, **parameters)``."""

    function: str
    """``module:function``, or ``/path/file.py:function``."""
    parameters: Mapping[str, Value]
    origin: Origin
    when: tuple[Condition, ...] = ()

    kind = "transform"

    @property
    def name(self) -> str:
        """What the step is called in messages and printed stages."""
        return _called(self.function, self.parameters)


@dataclass(frozen=True, slots=True)
class TransformFileStep:
    """A file of transform-dialect text, whose ``${name}`` are filled in with ``parameters``."""

    path: Path
    parameters: Mapping[str, Value]
    origin: Origin
    when: tuple[Condition, ...] = ()

    kind = "transform file"

    @property
    def name(self) -> str:
        """What the step is called in messages and printed stages."""
        return _called(self.path.name, self.parameters)


Step = PassStep | TransformStep | TransformFileStep


def _called(name: str, parameters: Mapping[str, Value]) -> str:
    if not parameters:
        return name
    return f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in parameters.items())})"


def _shown(value: Value) -> str:
    return f"[{written(value)}]" if isinstance(value, tuple) else written(value)
