"""What torch-mlir refuses, gets wrong or dies of: computed another way, or refused by name.

Each entry says what happens without it; ``tests/unit/torchsched/ingress/test_upstream.py`` has an input for each, and
fails once torch-mlir is right there, so that the entry can go. Knows fx nodes and no MLIR; what
is put right in MLIR is in :mod:`torchsched.ingress.mending`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["decompositions", "refusal_of", "rewrite_for_torch_mlir"]

aten = torch.ops.aten
_LARGEST_POWER = 8


def rewrite_for_torch_mlir(graph: torch.fx.Graph) -> None:
    """Apply each rewrite of :data:`_REWRITES` to the nodes of its operation."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        _count_axis_from_the_front(node)
        rewrite = _REWRITES.get(node.target)
        if rewrite is not None:
            with graph.inserting_before(node):
                new = rewrite(graph, node)
            if new is not None:
                new.meta = dict(node.meta)
                node.replace_all_uses_with(new)
                graph.erase_node(node)


def refusal_of(node: torch.fx.Node) -> str | None:
    """Say why a node's operation is refused; None where it is not."""
    reason = _REFUSED.get(node.target) if node.op == "call_function" else None
    return reason(node) if reason is not None else None


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Give what operations are made of that torch-mlir does not have, or takes apart wrong."""
    return {
        aten.gelu.default: _gelu,
    }


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> Any:
    # By tanh: off by 5e-5.
    if approximate != "tanh":
        return NotImplemented
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)


def _count_axis_from_the_front(node: torch.fx.Node) -> None:
    # scatter along -1: the process dies.
    schema = getattr(node.target, "_schema", None)
    first = node.args[0] if node.args else None
    if schema is None or not isinstance(first, torch.fx.Node) or "unsqueeze" in schema.name:
        return
    value = first.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.dim():
        return
    for place, argument in enumerate(schema.arguments[: len(node.args)]):
        given = node.args[place]
        if argument.name == "dim" and isinstance(given, int) and given < 0:
            node.update_arg(place, given + value.dim())


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


def _maximum(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # The NaN of the first operand is lost.
    first = _tensor(node, 0)
    value = first.meta["val"]
    if not node.meta["val"].is_floating_point() or not value.is_floating_point():
        return None
    nan = _made(graph, node, aten.ne.Tensor, (first, first), value.ne(value))
    found = _made(graph, node, _overload(node), tuple(node.args), node.meta["val"])
    return graph.call_function(aten.where.self, (nan, first, found))


def _hardtanh(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # NaN is lost; clamp keeps it, with what mend does.
    low, high = (*node.args[1:], *(-1.0, 1.0)[len(node.args) - 1 :])
    if not node.meta["val"].is_floating_point():
        return None
    return graph.call_function(aten.clamp.default, (node.args[0], low, high))


def _clamp(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Between tensors: the NaN of a bound is lost.
    tensor = _tensor(node, 0)
    bounds: list[Any] = [*node.args[1:], None, None][:2]
    if node.kwargs:
        bounds = [node.kwargs.get("min", bounds[0]), node.kwargs.get("max", bounds[1])]
    found = tensor
    for bound, choose in zip(bounds, (aten.maximum.default, aten.minimum.default), strict=True):
        if bound is not None:
            value = choose(found.meta["val"], bound.meta["val"])
            made = _made(graph, node, choose, (found, bound), value)
            better = _maximum(graph, made)
            if better is not None:
                better.meta = dict(made.meta)
            found = better or made
    return found if found is not tensor else None


def _negative(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Of whole numbers: by way of float32, exact to 2^24.
    if node.meta["val"].is_floating_point():
        return None
    return graph.call_function(aten.mul.Tensor, (node.args[0], -1))


def _whole_quotient(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Of whole numbers: by way of float64, exact to 2^53, where the quotient is rounded down or the divisor is a number.
    value, divisor = node.meta["val"], node.args[1]
    mode = "floor" if node.target is aten.floor_divide.default else node.kwargs.get("rounding_mode")
    if value.is_floating_point() or mode is None or isinstance(divisor, float | bool):
        return None
    like = torch.empty_like(value, memory_format=torch.contiguous_format)

    def made(target: Any, *args: Any, dtype: torch.dtype = value.dtype) -> torch.fx.Node:
        return _made(graph, node, target, args, like.to(dtype))

    if not isinstance(divisor, torch.fx.Node):
        divisor = made(aten.full.default, list(value.shape), divisor)
        divisor.kwargs = {"dtype": value.dtype, "pin_memory": False}
    elif any(each.meta["val"].dtype is torch.bool for each in (node.args[0], divisor)):  # type: ignore[union-attr]
        return None
    quotient = made(aten.div.Tensor_mode, node.args[0], divisor)
    quotient.kwargs = {"rounding_mode": "trunc"}
    if mode == "trunc":
        return quotient
    back = made(aten.mul.Tensor, quotient, divisor)
    signs = [made(aten.lt.Scalar, each, 0, dtype=torch.bool) for each in (node.args[0], divisor)]
    above = made(aten.ne.Tensor, back, node.args[0], dtype=torch.bool)
    differ = made(aten.ne.Tensor, *signs, dtype=torch.bool)
    less = made(aten.logical_and.default, above, differ, dtype=torch.bool)
    return graph.call_function(aten.where.self, (less, made(aten.sub.Tensor, quotient, 1), quotient))


def _spread(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # A variance of fewer numbers than are taken off their count: divided by what is below nothing.
    value, axes = (
        _tensor(node, 0).meta["val"],
        _list(node, 1) if len(node.args) > 1 and node.args[1] else None,
    )
    count = value.numel() if axes is None else math.prod(value.shape[axis] for axis in axes)
    correction: Any = node.kwargs.get("correction")
    if correction is not None and correction > count:
        node.kwargs = {**node.kwargs, "correction": count}
    return None


def _softmax(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Of one number without a dimension: the import never ends.
    tensor = _tensor(node, 0)
    if tensor.meta["val"].dim():
        return None
    wide = _made(graph, node, aten._to_copy.default, (tensor,), node.meta["val"])
    wide.kwargs = {"dtype": node.meta["val"].dtype}
    none = _made(graph, node, aten.sub.Tensor, (wide, wide), node.meta["val"])
    return graph.call_function(aten.exp.default, (none,))


def _of_one(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # Along the one axis of a number that has none: "failed to legalize operation 'torch.constant.bool'".
    return (
        None
        if _tensor(node, 0).meta["val"].dim()
        else graph.call_function(aten.clone.default, (node.args[0],))
    )


def _pad(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    # By less than nothing: "expected offsets to be non-negative".
    sizes, tensor = _list(node, 1), _tensor(node, 0)
    if min(sizes, default=0) >= 0:
        return None
    value = tensor.meta["val"]
    for place in range(0, len(sizes), 2):
        axis = value.dim() - 1 - place // 2
        start, end = max(0, -sizes[place]), value.shape[axis] - max(0, -sizes[place + 1])
        if end - start < value.shape[axis]:
            value = value.narrow(axis, start, end - start)
            tensor = _made(graph, node, aten.slice.Tensor, (tensor, axis, start, end), value)
    kept = [max(0, size) for size in sizes]
    return graph.call_function(aten.constant_pad_nd.default, (tensor, kept, *node.args[2:]))


_REWRITES: dict[Any, Callable[[torch.fx.Graph, torch.fx.Node], torch.fx.Node | None]] = {
    aten.any.default: _truth,
    aten.any.dim: _truth,
    aten.any.dims: _truth,
    aten.all.default: _truth,
    aten.all.dim: _truth,
    aten.all.dims: _truth,
    aten.pow.Tensor_Scalar: _power,
    aten.roll.default: _roll,
    aten.constant_pad_nd.default: _pad,
    aten.convolution.default: _convolution,
    aten.maximum.default: _maximum,
    aten.minimum.default: _maximum,
    aten.hardtanh.default: _hardtanh,
    aten.clamp.Tensor: _clamp,
    aten.neg.default: _negative,
    aten.floor_divide.default: _whole_quotient,
    aten.div.Scalar_mode: _whole_quotient,
    aten.div.Tensor_mode: _whole_quotient,
    aten._softmax.default: _softmax,
    aten.amax.default: _of_one,
    aten.amin.default: _of_one,
    aten.var.correction: _spread,
    aten.var_mean.correction: _spread,
}


def _weighted_bags(node: torch.fx.Node) -> str | None:
    # The weights are left out without a word.
    given = node.args[6] if len(node.args) > 6 else node.kwargs.get("per_sample_weights")
    return None if given is None else "per_sample_weights; multiply the rows of an embedding, and sum them"


_PUTS = (aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default)


def _mask_of(node: torch.fx.Node) -> torch.fx.Node | None:
    indices: Any = node.args[1]
    masks = [
        each for each in indices if each is not None and each.meta["val"].dtype in (torch.bool, torch.uint8)
    ]
    return masks[0] if masks else None


def _is_one_each(node: torch.fx.Node, mask: torch.fx.Node) -> bool:
    """Whether every place that a mask picks gets the same, so that nobody needs to count them."""
    rest = node.meta["val"].dim() - mask.meta["val"].dim()
    given: Any = node.args[1]
    put = _tensor(node, 2).meta["val"]
    alone = given[0] is mask and all(each is None for each in given[1:])
    return alone and (put.dim() <= rest or (put.dim() == rest + 1 and put.shape[0] == 1))


def _counted_mask(node: torch.fx.Node) -> str | None:
    # One that picks nothing has 0 put as if it were an index, and nobody counts what it picks.
    mask = _mask_of(node)
    if mask is None or _is_one_each(node, mask):
        return None
    return "a mask that says where the next of several values goes; write torch.where or masked_scatter"


def _masked_put(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node | None:
    mask = _mask_of(node)
    if mask is None:
        return None
    tensor, put = _tensor(node, 0), _tensor(node, 2)
    value, flags, new = (each.meta["val"] for each in (tensor, mask, put))
    if flags.dtype is torch.uint8:
        mask = _made(graph, node, aten.ne.Scalar, (mask, 0), flags.bool())
    rest = value.dim() - flags.dim()
    shape = [*flags.shape, *(1,) * rest]
    mask = _made(graph, node, aten.view.default, (mask, shape), flags.bool().reshape(shape))
    if new.dim() > rest:
        new = new.reshape(new.shape[1:])
        put = _made(graph, node, aten.view.default, (put, list(new.shape)), new)
    if len(node.args) > 3 and node.args[3]:
        put = _made(graph, node, aten.add.Tensor, (tensor, put), value)
    return graph.call_function(aten.where.self, (mask, put, tensor))


def _whole_numbers(node: torch.fx.Node) -> str | None:
    # The process dies.
    value = _tensor(node, 0).meta["val"]
    return None if value.is_floating_point() else f"{value.dtype}; convert to a float and back"


def _overflows(node: torch.fx.Node) -> str | None:
    # Made of exponentials of the numbers as they are: inf from 89 on.
    return "its sum overflows; take the maximum off, and write exp, cumsum and log"


_REFUSED: dict[Any, Callable[[torch.fx.Node], str | None]] = {
    aten.logcumsumexp.default: _overflows,
    aten.max_pool3d_with_indices.default: _whole_numbers,
    **dict.fromkeys(_PUTS, _counted_mask),
    aten._embedding_bag.default: _weighted_bags,
    aten._embedding_bag_forward_only.default: _weighted_bags,
}


_REWRITES.update(dict.fromkeys(_PUTS, _masked_put))
