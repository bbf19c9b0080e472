"""What a model writes besides what it returns, found by one call of it, and put back before every other.

A contestant that starts where the last one left off would answer another question. Knows tensors and modules; who
calls the model, and how fast that is, is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import ModelFileError
from kernelmark.text import in_short
from torchsched.failures import Stage, failure
from torchsched.ingress.imported import type_of
from torchsched.packing import ALIGNMENT
from torchsched.signature import TensorType

__all__ = ["Kept", "State", "cloned", "plain_inputs"]


class _Held(NamedTuple):
    """One tensor that a module holds, and what it was."""

    name: str
    owner: torch.nn.Module
    attribute: str
    tensor: torch.Tensor
    kept: torch.Tensor

    @property
    def now(self) -> Any:
        return getattr(self.owner, self.attribute)


class Kept:
    """The buffers and tensor attributes of ``model`` as they are now, to be put back before a call.

    A model whose calls start where the last one left off gives another answer each time, and how often it was
    called before is nobody's business.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._held = list(_held(model))

    def after_first_call(self) -> None:
        """Keep only what that call has changed, and put it back: the rest, which may be large, needs no copy."""
        # by value: the kernel of batch norm writes its statistics without counting up their version
        self._held = [
            each for each in self._held if each.now is not each.tensor or not _same(each.tensor, each.kept)
        ]
        self.put_back()

    @property
    def names(self) -> tuple[str, ...]:
        """The buffers and tensor attributes that are written."""
        return tuple(each.name for each in self._held)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self._held

    def put_back(self) -> None:
        """Let the tensors be what they were."""
        with torch.no_grad():
            for each in self._held:
                if each.now is not each.tensor:
                    setattr(each.owner, each.attribute, each.tensor)
                each.tensor.copy_(each.kept)


class State(Kept):
    """The buffers, tensor attributes and inputs that a call of ``model`` writes.

    Args:
        model: Called once, on copies of the inputs, and put back.
        inputs: What it is called with.

    Attributes:
        inputs: The same, as no call has written them.
        outputs: The types of the tensors that the model returns.

    Raises:
        ModelFileError: PyTorch cannot run it, so that there is no answer to compare with.
        ModelRunError: it writes a parameter, which is not put back.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__(model)
        parameters = {name: (each, each._version) for name, each in model.named_parameters()}
        private = cloned(inputs)
        try:
            with torch.no_grad():
                answer = model(*private)
        except Exception as error:
            raise ModelFileError(
                f"PyTorch itself cannot run {type(model).__name__} on these inputs, so there is no answer to compare"
                f" with ({in_short(error)}); give it other sizes or another --dtype"
            ) from error
        self.outputs: tuple[TensorType, ...] = tuple(type_of(each) for each in _tensors([answer]))
        for name, (parameter, version) in parameters.items():
            if parameter._version != version:
                raise failure(
                    Stage.RUN,
                    f"the model writes its parameter {name!r} when it is called, so that no two calls are alike",
                )
        pairs = zip(_tensors(private), _tensors(inputs), strict=True)
        self._written = [index for index, (now, before) in enumerate(pairs) if not _same(now, before)]
        self._take(inputs)
        self.after_first_call()

    def for_inputs(self, inputs: Sequence[Any]) -> State:
        """Give the state of the same model with other inputs of the same types; the model is not called."""
        other = copy(self)
        other._take(inputs)
        return other

    def _take(self, inputs: Sequence[Any]) -> None:
        tensors = _tensors(inputs)
        self.inputs, self._kept = tuple(inputs), [tensors[index].clone() for index in self._written]

    @property
    def is_empty(self) -> bool:
        """Whether a call writes nothing but what it returns."""
        return super().is_empty and not self._written

    def private_inputs(self) -> tuple[Any, ...]:
        """Give inputs that may be written."""
        return cloned(self.inputs) if self._written else self.inputs

    def put_back(self, private: Sequence[Any] | None = None) -> None:
        """Let the tensors be what they were, and those of ``private`` inputs that were written."""
        super().put_back()
        tensors = [] if private is None else _tensors(private)
        with torch.no_grad():
            for index, kept in zip(self._written, self._kept, strict=True) if tensors else ():
                tensors[index].copy_(kept)

    def after(self, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Give what has been written: the model's own tensors, and those of ``inputs``, by name."""
        tensors = _tensors(inputs)
        own = {each.name: each.now for each in self._held}
        return own | {f"input[{index}]": tensors[index] for index in self._written}

    def after_results(
        self, results: dict[str, torch.Tensor], input_names: Sequence[str]
    ) -> dict[str, torch.Tensor]:
        """Give the same of compiled code, whose results say by an argument's name what they are written to.

        Args:
            results: The results that write an argument, by its name.
            input_names: The arguments that are inputs, in order.
        """
        places = {name: name for name in self.names}
        places |= {f"input[{index}]": input_names[index] for index in self._written}
        return {name: results[place] for name, place in places.items() if place in results}


def plain_inputs(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Give the inputs in contiguous memory that begins where compiled code wants it; copies where it must."""

    def plain(leaf: torch.Tensor) -> torch.Tensor:
        tensor = leaf.detach().resolve_neg().contiguous()
        return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()

    return pytree.tree_map_only(torch.Tensor, plain, tuple(inputs))


def cloned(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Give inputs whose tensors may be written."""
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, tuple(inputs))


def _held(model: torch.nn.Module) -> Iterator[_Held]:
    """Give each buffer and plain tensor attribute once."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, value in {**module._buffers, **plain}.items():
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield _Held(f"{path}.{name}" if path else name, module, name, value, value.detach().clone())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_floating_point() or one.is_complex():
        one, other = one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5)
    return torch.equal(one, other)


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tuple(inputs)) if isinstance(leaf, torch.Tensor)]
