"""Operations that torch-mlir refuses or gets wrong, rewritten as others that it does right.

Each rewrite says what went wrong without it; a test runs each. Knows fx nodes and no MLIR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["rewrite_for_torch_mlir"]

aten = torch.ops.aten
_LARGEST_POWER = 8


def rewrite_for_torch_mlir(graph: torch.fx.Graph) -> None:
    """Apply each rewrite of :data:`_REWRITES` to the nodes of its operation."""
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is not None:
            with graph.inserting_before(node):
                new = rewrite(graph, node)
            if new is not None:
                new.meta = dict(node.meta)
                node.replace_all_uses_with(new)
                graph.erase_node(node)


def _full(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    # Of a tensor that is only its shape here, torch-mlir would keep the memory.
    value = node.meta["val"]
    return graph.call_function(
        aten.full.default,
        (list(value.shape), node.args[1]),
        {"dtype": value.dtype, "pin_memory": False},
    )


def _truth(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # any and all of what is not boolean: "'arith.ori' op requires the same type for all operands".
    tensor = _tensor(node, 0)
    value = tensor.meta["val"]
    if value.dtype is torch.bool:
        return None
    flags = _made(graph, node, aten.ne.Scalar, (tensor, 0), value.ne(0))
    found = _made(graph, node, _overload(node), (flags, *node.args[1:]), node.meta["val"].bool())
    found.kwargs = node.kwargs
    # Of uint8, any and all are uint8.
    return graph.call_function(aten._to_copy.default, (found,), {"dtype": node.meta["val"].dtype})


def _power(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Powers of whole numbers: "unimplemented: non-floating point dtype".
    tensor, exponent = _tensor(node, 0), node.args[1]
    if node.meta["val"].is_floating_point() or not isinstance(exponent, int):
        return None
    if not 1 <= exponent <= _LARGEST_POWER:
        return None
    product = tensor
    for _ in range(exponent - 1):
        product = graph.call_function(aten.mul.Tensor, (product, tensor))
        product.meta = dict(node.meta)
    # A node of its own, which takes the place of the power, also where that is the tensor itself.
    return product if exponent > 1 else graph.call_function(aten.clone.default, (tensor,))


def _roll(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    # "failed to legalize operation 'torch.constant.int'".
    tensor, shifts, dims = _tensor(node, 0), _list(node, 1), _list(node, 2)
    value, shape = tensor.meta["val"], list(tensor.meta["val"].shape)
    if not dims:
        value = value.reshape(-1)
        tensor = _made(graph, node, aten.view.default, (tensor, [-1]), value)
    for shift, dim in zip(shifts, dims or [0], strict=True):
        size = value.shape[dim]
        split = (size - shift % size) if size else 0
        parts = [
            _made(
                graph,
                node,
                aten.slice.Tensor,
                (tensor, dim, start, end),
                value.narrow(dim, start, end - start),
            )
            for start, end in ((split, size), (0, split))
            if start < end
        ]
        if len(parts) == 2:
            tensor = _made(graph, node, aten.cat.default, (parts, dim), value)
    return graph.call_function(aten.view.default, (tensor, shape))


def _convolution(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Transposed, with more padding than its kernel reaches: "offset 3 is out-of-bounds", of a slice that goes into
    # the spread-out input. Less padding gives the same results and others around them.
    weight, stride, padding, dilation, transposed = _tensor(node, 1), *(node.args[k] for k in (3, 4, 5, 6))
    rank = weight.meta["val"].dim() - 2
    given, steps = (_each(rank, sizes) for sizes in (padding, dilation))
    reach = [step * (size - 1) for step, size in zip(steps, weight.meta["val"].shape[2:], strict=True)]
    cut = [max(0, had - most) for had, most in zip(given, reach, strict=True)]
    if not transposed or not any(cut):
        return None
    kept = [had - less for had, less in zip(given, cut, strict=True)]
    args = (*node.args[:3], stride, kept, *node.args[5:])
    value = node.meta["val"]
    sizes = [*value.shape[:2], *(size + 2 * less for size, less in zip(value.shape[2:], cut, strict=True))]
    made = _made(graph, node, aten.convolution.default, args, value.new_empty(sizes))
    for dim, less in enumerate(cut, start=2):
        if less:
            sizes[dim] -= 2 * less
            part = (made, dim, less, less + sizes[dim])
            made = _made(graph, node, aten.slice.Tensor, part, value.new_empty(sizes))
    return made


def _each(rank: int, sizes: Any) -> list[int]:
    """Give a size for each dimension; one stands for all."""
    found = list(sizes)
    return found * rank if len(found) == 1 else found


def _made(
    graph: torch.fx.Graph, origin: torch.fx.Node, target: Any, args: tuple[Any, ...], value: Any
) -> torch.fx.Node:
    made = graph.call_function(target, args)
    made.meta = {"stack_trace": origin.meta.get("stack_trace"), "val": value}
    return made


def _tensor(node: torch.fx.Node, index: int) -> torch.fx.Node:
    given = node.args[index]
    assert isinstance(given, torch.fx.Node)  # the schema says so
    return given


def _list(node: torch.fx.Node, index: int) -> list[int]:
    given: Any = node.args[index] if index < len(node.args) else []
    return [given] if isinstance(given, int) else list(given)


def _overload(node: torch.fx.Node) -> Callable[..., Any]:
    assert callable(node.target)  # a call_function node
    return node.target


_REWRITES: dict[Any, Callable[[torch.fx.Graph, torch.fx.Node], torch.fx.Node | None]] = {
    aten.full_like.default: _full,
    aten.any.default: _truth,
    aten.any.dim: _truth,
    aten.any.dims: _truth,
    aten.all.default: _truth,
    aten.all.dim: _truth,
    aten.all.dims: _truth,
    aten.pow.Tensor_Scalar: _power,
    aten.roll.default: _roll,
    aten.convolution.default: _convolution,
}
