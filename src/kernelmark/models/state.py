"""What a model writes besides what it returns, found by one call of it, and put back before every other.

A contestant that starts where the last one left off would answer another question. Knows tensors and modules; who
calls the model, and how fast that is, is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import ModelFileError
from kernelmark.text import in_short
from torchsched.failures import Stage, failure
from torchsched.ingress.imported import type_of
from torchsched.signature import TensorType

__all__ = ["Kept", "State", "cloned", "plain_inputs"]


@dataclass(frozen=True, slots=True)
class _Held:
    """One tensor that a module holds, and what it was."""

    name: str
    owner: torch.nn.Module
    attribute: str
    tensor: torch.Tensor
    kept: torch.Tensor

    @property
    def now(self) -> Any:
        return getattr(self.owner, self.attribute)

    def put_back(self) -> None:
        if self.now is not self.tensor:
            setattr(self.owner, self.attribute, self.tensor)
        self.tensor.copy_(self.kept)


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

    def values(self) -> dict[str, torch.Tensor]:
        """Give what stands in them now, by name."""
        return {each.name: each.now for each in self._held}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self._held

    def put_back(self) -> None:
        """Let the tensors be what they were."""
        with torch.no_grad():
            for each in self._held:
                each.put_back()


class State:
    """The buffers, tensor attributes and inputs that a call of ``model`` writes.

    Args:
        model: Called once, on copies of the inputs, and put back.
        inputs: What it is called with.

    Attributes:
        outputs: The types of the tensors that the model returns.

    Raises:
        ModelFileError: PyTorch cannot run it, so that there is no answer to compare with.
        ModelRunError: it writes a parameter, which is not put back.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[Any]) -> None:
        self._model = Kept(model)
        parameters = {name: (each, each._version) for name, each in model.named_parameters()}
        tensors = _tensors(inputs)
        private = cloned(inputs)
        answer = _answer(model, private)
        self.outputs: tuple[TensorType, ...] = tuple(type_of(each) for each in _tensors([answer]))
        for name, (parameter, version) in parameters.items():
            if parameter._version != version:
                raise failure(
                    Stage.RUN,
                    f"the model writes its parameter {name!r} when it is called, so that no two calls are alike",
                )
        self._written = [
            index
            for index, (each, kept) in enumerate(zip(_tensors(private), tensors, strict=True))
            if not _same(each, kept)
        ]
        self._inputs, self._kept = tuple(inputs), [tensors[index].clone() for index in self._written]
        self._model.after_first_call()

    def for_inputs(self, inputs: Sequence[Any]) -> State:
        """Give the state of the same model with other inputs of the same types; the model is not called."""
        other = copy(self)
        tensors = _tensors(inputs)
        other._inputs, other._kept = tuple(inputs), [tensors[index].clone() for index in self._written]
        return other

    @property
    def is_empty(self) -> bool:
        """Whether a call writes nothing but what it returns."""
        return self._model.is_empty and not self._written

    @property
    def names(self) -> tuple[str, ...]:
        """The buffers and tensor attributes that are written."""
        return self._model.names

    @property
    def writes_inputs(self) -> bool:
        """Whether an input is written."""
        return bool(self._written)

    def put_back(self) -> None:
        """Let the model's own tensors be what they were before the first call."""
        self._model.put_back()

    def private_inputs(self) -> tuple[Any, ...]:
        """Give inputs that may be written."""
        return cloned(self._inputs) if self._written else self._inputs

    def put_back_inputs(self, private: Sequence[Any]) -> None:
        """Let inputs that were written be what they were."""
        tensors = _tensors(private)
        with torch.no_grad():
            for index, kept in zip(self._written, self._kept, strict=True):
                tensors[index].copy_(kept)

    def after(self, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Give what has been written: the model's own tensors, and those of ``inputs``, by name."""
        tensors = _tensors(inputs)
        return self._model.values() | {_input_name(index): tensors[index] for index in self._written}

    def after_results(
        self, results: dict[str, torch.Tensor], input_names: Sequence[str]
    ) -> dict[str, torch.Tensor]:
        """Give the same of compiled code, whose results say by an argument's name what they are written to.

        Args:
            results: The results that write an argument, by its name.
            input_names: The arguments that are inputs, in order.
        """
        found = {name: results[name] for name in self.names if name in results}
        places = {_input_name(index): input_names[index] for index in self._written}
        return found | {name: results[place] for name, place in places.items() if place in results}


def _answer(model: torch.nn.Module, inputs: Sequence[Any]) -> Any:
    try:
        with torch.no_grad():
            return model(*inputs)
    except Exception as error:
        raise ModelFileError(
            f"PyTorch itself cannot run {type(model).__name__} on these inputs, so there is no answer to compare with"
            f" ({in_short(error)}); give it other sizes or another --dtype"
        ) from error


def plain_inputs(inputs: Sequence[Any], alignment: int) -> tuple[Any, ...]:
    """Give the inputs in contiguous memory that begins at a multiple of ``alignment``; copies where it must."""

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensor = leaf.detach().resolve_neg().contiguous()
        return tensor if tensor.data_ptr() % alignment == 0 else tensor.clone()

    return pytree.tree_map(plain, tuple(inputs))


def cloned(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Give inputs whose tensors may be written."""
    return pytree.tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, tuple(inputs)
    )


def _held(model: torch.nn.Module) -> Iterator[_Held]:
    """Give each buffer and plain tensor attribute once."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, value in {**module._buffers, **plain}.items():
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield _Held(f"{path}.{name}" if path else name, module, name, value, value.detach().clone())


def _input_name(index: int) -> str:
    return f"input[{index}]"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if one.is_floating_point() or one.is_complex():
        return torch.equal(one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5))
    return torch.equal(one, other)


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tuple(inputs)) if isinstance(leaf, torch.Tensor)]
