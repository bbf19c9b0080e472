"""What a compiled model takes and gives: the types, names and roles that every later stage goes by.

A signature is what was imported, not what a user wrote: parameters, buffers and constants stand in it beside the
inputs. It knows neither torch nor MLIR.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from torchsched.elements import Element

__all__ = ["CHECKED", "Argument", "Result", "Role", "Signature", "TensorType"]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's sizes and element type; every size is known, and any may be zero."""

    shape: tuple[int, ...]
    element: Element

    @property
    def numel(self) -> int:
        """How many elements it has; one that has no dimension has one."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous tensor of this type."""
        return self.numel * self.element.bytes

    @property
    def mlir(self) -> str:
        """MLIR's text for the tensor type, such as ``tensor<4x8xf32>``."""
        return f"tensor<{self._body}>"

    @property
    def memref(self) -> str:
        """MLIR's text for the contiguous buffer, such as ``memref<4x8xf32>``."""
        return f"memref<{self._body}>"

    @property
    def _body(self) -> str:
        return "x".join([*map(str, self.shape), self.element.mlir])

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), str(self.element)])


class Role(StrEnum):
    """Where an argument's value comes from."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    CONSTANT = "constant"
    """A tensor that the model holds without having registered it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the compiled function."""

    name: str
    """The state's own name (``layers.0.weight``), or the input's."""
    role: Role
    type: TensorType


@dataclass(frozen=True, slots=True)
class Result:
    """One result of the compiled function."""

    name: str
    type: TensorType
    writes: str | None = None
    """The argument whose new value this is; None for what the model returns."""


CHECKED = Result("checks", TensorType((), Element.I64))
"""The last result where a signature has checks: 0, or one more than the place of a check that failed."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and results of ``main``, in its order.

    Results that write an argument come first, as ``torch.export`` orders them.
    """

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    checks: tuple[str, ...] = ()
    """What a call reports, through a last result of its own, that eager raises an error for."""

    def __post_init__(self) -> None:
        names = [argument.name for argument in self.arguments]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arguments are called {twice[0]!r}")
        types = {argument.name: argument.type for argument in self.arguments}
        for result in self.results:
            if result.writes is not None and types.get(result.writes) != result.type:
                raise ValueError(
                    f"result {result.name!r} of {result.type} cannot write argument {result.writes!r}"
                    f" of {types.get(result.writes)}"
                )

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that a caller hands in."""
        return tuple(each for each in self.arguments if each.role is Role.INPUT)

    @property
    def outputs(self) -> tuple[Result, ...]:
        """The results that the model returns; without those that only write an argument."""
        return tuple(each for each in self.results if each.writes is None and each is not CHECKED)

    @property
    def main_element(self) -> Element:
        """The floating-point type that most bytes of arguments and results have; f32 where there is none."""
        volume: dict[Element, int] = {}
        for each in (*self.arguments, *self.results):
            if each.type.element.is_float:
                volume[each.type.element] = volume.get(each.type.element, 0) + each.type.nbytes
        return max(volume, key=lambda element: volume[element], default=Element.F32)

    def index_of(self, name: str) -> int:
        """Give the position of the argument called ``name``."""
        for index, argument in enumerate(self.arguments):
            if argument.name == name:
                return index
        raise KeyError(name)
