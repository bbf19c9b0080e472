"""What of a graph is known before it runs: tensors made of numbers alone, evaluated by PyTorch.

torch-mlir folds constants itself, and gets comparisons and casts between kinds of numbers wrong (a wrong answer, or
the process dies); what is folded here never comes to its folders. Knows fx nodes and no MLIR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["Constants", "fold_constants"]

aten = torch.ops.aten

MOST = 1 << 16
"""Elements of a tensor that is evaluated whole. One full of one number may be of any size."""


class Constants:
    """The values of those nodes of a graph that are made of numbers alone.

    Args:
        known: Values of placeholders that no caller changes.
    """

    def __init__(self, known: dict[torch.fx.Node, torch.Tensor] | None = None) -> None:
        self._known: dict[torch.fx.Node, torch.Tensor | None] = dict(known or {})

    def value(self, node: Any) -> torch.Tensor | None:
        """Give the tensor that a node is in every call; None where that is not known."""
        if not isinstance(node, torch.fx.Node):
            return None
        pending = [node]
        while pending:  # a chain of nodes may be longer than Python's stack is deep
            current = pending[-1]
            if current in self._known:
                pending.pop()
                continue
            if not _may_be_known(current):
                self._known[current] = None
                continue
            missing = [each for each in _given(current) if each not in self._known]
            pending += missing
            if not missing:
                self._known[current] = self._evaluated(current)
        return self._known[node]

    def _evaluated(self, node: torch.fx.Node) -> torch.Tensor | None:
        given = {each: self._known[each] for each in _given(node)}
        if any(value is None for value in given.values()):
            return None
        value = node.meta["val"]
        shape = [int(size) for size in value.shape]
        numbers = [_number(each) for each in given.values() if each is not None]
        target: Callable[..., Any] = node.target  # type: ignore[assignment]  # a call_function node
        try:
            if node.target in _FULL:
                return torch.full((), _FULL[node.target](node), dtype=value.dtype).expand(shape)
            if all(each is not None for each in numbers) and _is_pointwise(node.target):
                # The same number everywhere: computed once. A tensor of no dimension would promote otherwise.
                small = {each: _small(tensor) for each, tensor in given.items() if tensor is not None}
                found = _call(target, node, small)
                return found.reshape(-1)[0].expand(shape) if found.dtype == value.dtype else None
            if value.numel() > MOST:
                return None
            found = _call(target, node, given)
        except Exception:  # whatever torch does not do with these: then it is not known  # noqa: BLE001
            return None
        return found if found.dtype == value.dtype and list(found.shape) == shape else None


def fold_constants(graph: torch.fx.Graph, constants: Constants) -> None:
    """Put in the place of each node that is one number everywhere a tensor full of that number."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.all_input_nodes:
            continue
        value = constants.value(node)
        number = None if value is None else _number(value)
        if number is None:
            continue
        assert value is not None
        with graph.inserting_before(node):
            full = graph.call_function(
                aten.full.default,
                (list(value.shape), number.item()),
                {"dtype": value.dtype, "pin_memory": False},
            )
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)
        graph.erase_node(node)


_FULL: dict[Any, Callable[[torch.fx.Node], Any]] = {
    aten.full.default: lambda node: node.args[1],
    aten.full_like.default: lambda node: node.args[1],
    aten.new_full.default: lambda node: node.args[2],
    aten.fill.Scalar: lambda node: node.args[1],
    aten.scalar_tensor.default: lambda node: node.args[0],
    aten.ones.default: lambda _: 1,
    aten.ones_like.default: lambda _: 1,
    aten.new_ones.default: lambda _: 1,
    aten.zeros.default: lambda _: 0,
    aten.zeros_like.default: lambda _: 0,
    aten.new_zeros.default: lambda _: 0,
}
"""The number that each makes a tensor full of, whatever tensor it takes its sizes from."""


def _given(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [] if node.target in _FULL else node.all_input_nodes


def _may_be_known(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    schema = node.target._schema
    if schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if "empty" in schema.name:
        return False
    if not all(isinstance(size, int) for size in value.shape):
        return False
    return bool(node.all_input_nodes) or node.target in _FULL or value.numel() <= MOST


def _is_pointwise(target: Any) -> bool:
    return torch.Tag.pointwise in target.tags or target in (aten._to_copy.default, aten.clone.default)


def _call(target: Callable[..., Any], node: torch.fx.Node, given: dict[Any, Any]) -> torch.Tensor:
    def filled(each: Any) -> Any:
        return given[each] if isinstance(each, torch.fx.Node) else each

    args, kwargs = pytree.tree_map(filled, (list(node.args), dict(node.kwargs)))
    with torch.no_grad():
        return target(*args, **kwargs)


def _small(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1)[:1].reshape((1,) * tensor.dim()) if tensor.numel() else tensor


def _number(tensor: torch.Tensor) -> torch.Tensor | None:
    """Give the one number that a tensor is full of, of its dtype; None where there are several, or none."""
    if not tensor.numel():
        return None
    if all(stride == 0 or size == 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor[(0,) * tensor.dim()]
    first = tensor.reshape(-1)[0]
    same = tensor == first
    if tensor.is_floating_point():  # zeros of both signs are equal, and not one number
        same &= tensor.signbit() == first.signbit()
    return first if bool(same.all()) else None
