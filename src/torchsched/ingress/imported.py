"""What an import gives: the module in its context, its signature, and how a caller's values map to both.

Knows how inputs are flattened into arguments and results put back into the model's own structure; it neither
exports nor lowers anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsched.bindings import Context, Module
from torchsched.elements import Element
from torchsched.failures import Stage, failure
from torchsched.signature import Role, Signature, TensorType

__all__ = ["Imported", "InputTree", "OutputTree", "type_of"]


@dataclass(frozen=True, slots=True)
class InputTree:
    """How the inputs of a call are flattened.

    ``leaves`` holds, for each leaf, the index of its argument, or ``(value,)`` where the leaf is no tensor: such
    a value was built into the module.
    """

    structure: Any = field(repr=False)
    leaves: tuple[int | tuple[Any], ...]


@dataclass(frozen=True, slots=True)
class OutputTree:
    """How results are put back together: each leaf is the index of a result, or ``(value,)``."""

    structure: Any = field(repr=False)
    leaves: tuple[int | tuple[Any], ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as linalg on tensors: one function ``main``, its arguments and results in signature order.

    The module may hold ``tm_tensor`` operations beside those of linalg (see :attr:`uses_tm_tensor`): a scan for
    cumsum and cumprod, a scatter for indexed writes, sort and topk. They are torch-mlir's own, known only in
    ``context``, and upstream bufferisation has no part in them: their module needs ``tm-tensor-bufferize``, then
    ``one-shot-bufferize{copy-before-write ...}``, then ``tm-tensor-to-loops``. So work in ``context``, and do
    not pass the module through text into another one.

    The module is the caller's to rewrite. The location of each operation is the line of the model's own source
    that it came from, where that is known.
    """

    name: str
    context: Context = field(repr=False)
    module: Module = field(repr=False)
    signature: Signature
    values: tuple[torch.Tensor | None, ...] = field(repr=False)
    """For each argument its value when imported: that of a parameter, buffer or constant; None for an input.
    Those that the model writes are copies, so that nothing that runs later changes them."""
    inputs: InputTree = field(repr=False)
    outputs: OutputTree = field(repr=False)
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The operations of each line of the model, which is the location of what they became: ``file:line``."""

    @property
    def uses_tm_tensor(self) -> bool:
        """Whether the module holds operations of ``tm_tensor``."""
        # As text: a walk in Python takes 40 µs an operation, and an unrolled net has thousands.
        return "tm_tensor." in str(self.module.operation.get_asm(large_elements_limit=8))

    def arguments(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Give the arguments of ``main`` for ``inputs``, as the model's ``forward`` takes them.

        Raises:
            ModelRunError: an input has another structure, type or built-in value than when imported.
        """
        leaves, structure = pytree.tree_flatten((tuple(inputs), {}))
        if structure != self.inputs.structure:
            raise failure(
                Stage.RUN,
                f"{self.name} was imported for inputs of the structure {self.inputs.structure}, and is called"
                f" with {structure}",
            )
        arguments: list[torch.Tensor | None] = list(self.values)
        for number, (leaf, place) in enumerate(zip(leaves, self.inputs.leaves, strict=True)):
            if isinstance(place, tuple):
                self._require_built_in(number, leaf, place[0])
            else:
                arguments[place] = self._require_type(leaf, place)
        return [each for each in arguments if each is not None]

    def assemble(self, results: Sequence[torch.Tensor]) -> Any:
        """Put ``results``, all of them in signature order, into the structure that the model returns."""
        leaves = [place[0] if isinstance(place, tuple) else results[place] for place in self.outputs.leaves]
        return pytree.tree_unflatten(leaves, self.outputs.structure)

    def _require_built_in(self, number: int, leaf: Any, value: Any) -> None:
        if type(leaf) is not type(value) or leaf != value:
            raise failure(
                Stage.RUN,
                f"input {number} of {self.name} is {leaf!r}, and {value!r} was built into the module when it"
                " was imported; import the model again for another value",
            )

    def _require_type(self, leaf: Any, place: int) -> torch.Tensor:
        argument = self.signature.arguments[place]
        if not isinstance(leaf, torch.Tensor) or type_of(leaf) != argument.type:
            found = type_of(leaf) if isinstance(leaf, torch.Tensor) else type(leaf).__name__
            raise failure(
                Stage.RUN,
                f"input {argument.name!r} of {self.name} is {found}, and the module was imported for"
                f" {argument.type}; import the model again for other sizes",
            )
        return leaf.detach()

    def inputs_of(self, arguments: Sequence[Any]) -> list[Any]:
        """Pick those of ``arguments``, in signature order, that a caller hands in."""
        return [
            value
            for value, argument in zip(arguments, self.signature.arguments, strict=True)
            if argument.role is Role.INPUT
        ]


def type_of(tensor: torch.Tensor) -> TensorType:
    """Give the type of ``tensor``.

    Raises:
        UsageError: its dtype is none that can be compiled.
    """
    return TensorType(tuple(int(size) for size in tensor.shape), Element.from_torch(tensor.dtype))
