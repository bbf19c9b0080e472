"""Applies transform-dialect text to a module: what every transform written as text goes through.

Knows neither what the text does nor where it comes from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchsched.bindings import Module, bindings
from torchsched.failures import captured_stderr

__all__ = ["ENTRY", "TransformError", "apply_sequence", "sequence"]

ENTRY = "__transform_main"
"""The named sequence that is applied; the name that MLIR's own interpreter looks for."""

_PLACE = re.compile(r'"-":(\d+):\d+')


@dataclass(eq=False)
class TransformError(Exception):
    """A text that cannot be parsed, or a sequence that stopped."""

    message: str
    line: int | None = None
    """The line of the text, from 1, where MLIR says one."""

    def __str__(self) -> str:
        return self.message


def sequence(body: str, *, root: str = "%root") -> str:
    """Wrap operations into a module with the one sequence that is applied, ``root`` its only argument."""
    return (
        "module attributes {transform.with_named_sequence} {\n"
        f"transform.named_sequence @{ENTRY}({root}: !transform.any_op) {{\n{body}\ntransform.yield\n}}\n}}\n"
    )


def apply_sequence(module: Module, text: str) -> None:
    """Apply the sequence ``__transform_main`` of ``text`` to ``module``.

    Raises:
        TransformError: the text cannot be parsed, has no such sequence, or a transform in it failed. The module
            is then in an unknown state.
    """
    ir = bindings("ir")
    interpreter = bindings("dialects.transform.interpreter")
    with module.context, ir.Location.unknown(module.context), captured_stderr() as said:
        try:
            transforms = ir.Module.parse(text)
        except (ir.MLIRError, ValueError) as error:
            diagnostics = _joined(error, said.take())
            raise TransformError(f"the text cannot be parsed: {diagnostics}", _line(diagnostics)) from error
        entry = _entry(transforms)
        try:
            interpreter.apply_named_sequence(module.operation, entry, transforms.operation)
        except (ir.MLIRError, ValueError) as error:
            diagnostics = _joined(error, said.take())
            raise TransformError(diagnostics, _line(diagnostics)) from error


def _entry(transforms: Module) -> object:
    for operation in transforms.body.operations:
        if operation.operation.name == "transform.named_sequence" and operation.sym_name.value == ENTRY:
            return operation.operation
    raise TransformError(f"the text has no transform.named_sequence @{ENTRY}")


def _joined(error: Exception, said: str) -> str:
    return "\n".join(part for part in (str(error).strip(), said.strip()) if part)


def _line(diagnostics: str) -> int | None:
    place = _PLACE.search(diagnostics)
    return int(place[1]) if place else None
