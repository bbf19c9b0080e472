"""A model as a case of the engine: its inputs, its answer, its check, and what a report says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.harness import Case
from kernelmark.models.request import ModelRequest
from kernelmark.verify import Exact
from torchsched.elements import FLOATS, Element
from torchsched.ingress import LoadedModel

__all__ = ["main_element", "make_case", "request_facts"]


@dataclass(frozen=True, slots=True)
class _Workload:
    """A model's inputs, its answer and how it is checked, as a case wants them."""

    inputs: tuple[Any, ...]
    reference: Callable[..., Any]
    declaration: Exact

    def gen_inputs(self) -> tuple[Any, ...]:
        """Give the inputs."""
        return self.inputs

    def verification(self) -> Exact:
        """Give the check."""
        return self.declaration


def make_case(
    case_id: str,
    inputs: tuple[Any, ...],
    reference: Callable[..., Any],
    declaration: Exact,
    *,
    facts: Mapping[str, Any],
    seed: int,
) -> Case:
    """Build the case; ``facts`` stand in its report beside the types of its inputs."""
    described = {f"input[{index}]": _described(each) for index, each in enumerate(inputs)}
    return Case(
        case_id,
        lambda: _Workload(inputs, reference, declaration),
        params={**described, **facts},
        seed=seed,
    )


def request_facts(request: ModelRequest, loaded: LoadedModel) -> dict[str, Any]:
    """Give what was asked for, as a report shows it."""
    facts: dict[str, Any] = {}
    if loaded.init_args:
        facts["init_args"] = ", ".join(map(repr, loaded.init_args))
    facts["mode"] = request.mode.value
    facts["pipeline"] = " then ".join(request.pipeline)
    if request.values:
        facts["parameters"] = ", ".join(f"{name}={value}" for name, value in request.values.items())
    return facts


def main_element(model: torch.nn.Module, inputs: Sequence[Any]) -> Element:
    """Give the float type that most bytes of the model and its inputs have; f32 where there is none."""
    volume: dict[Element, int] = {}
    for each in (*model.parameters(), *model.buffers(), *pytree.tree_leaves(tuple(inputs))):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            element = Element.from_torch(each.dtype)
            volume[element] = volume.get(element, 0) + each.numel() * element.bytes
    known = [each for each in volume if each in FLOATS]
    return max(known, key=lambda each: volume[each], default=Element.F32)


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)[:60]
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
