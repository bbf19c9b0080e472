"""Indices and divisors that eager looks at before it uses them: made safe to use, and reported after the call.

Compiled code reads and writes where an index says. So each index that is not known is wrapped as eager wraps it and
held inside its axis, and whether it had to be is one number more that ``main`` gives: 0, or which check failed. A
whole number is never divided by zero, which would end the process. Knows fx nodes and no MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsched.ingress.constants import Constants
from torchsched.ingress.exporting import place_of

__all__ = ["Check", "add_checks"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a call may have done that eager raises an error for."""

    message: str


def add_checks(
    graph: torch.fx.Graph, constants: Constants, *, report: bool
) -> tuple[torch.fx.Node | None, tuple[Check, ...]]:
    """Make indices and divisors safe, and add what reports those that were not.

    Args:
        graph: A functional graph.
        constants: What is known of it.
        report: Whether to report; the indices of a backward graph have been looked at in its forward graph.

    Returns:
        The node that is 0, or one more than the place of the failed check in what comes second; None where there
        is nothing to check.
    """
    checks: list[Check] = []
    codes: list[torch.fx.Node] = []
    for node in list(graph.nodes):
        guard = _GUARDS.get(node.target) if node.op == "call_function" else None
        if guard is None:
            continue
        with graph.inserting_before(node):
            for bad, message in guard(_Maker(graph, node, constants), node):
                if report:
                    checks.append(Check(f"{message} in {node.target}{_at(node)}"))
                    codes.append(_code(_Maker(graph, node, constants), bad, len(checks)))
    if not codes:
        return None, ()
    (output,) = (node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        make = _Maker(graph, codes[-1], constants)
        total = codes[0]
        for code in codes[1:]:
            total = make(aten.maximum.default, total, code)
    return total, tuple(checks)


def _at(node: torch.fx.Node) -> str:
    place = place_of(node)
    return f" ({place})" if place else ""


class _Maker:
    """Makes nodes, with their values as torch's fake tensors give them."""

    def __init__(self, graph: torch.fx.Graph, origin: torch.fx.Node, constants: Constants) -> None:
        self.graph, self.origin, self.constants = graph, origin, constants

    def __call__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.fx.Node:
        made = self.graph.call_function(target, args, kwargs)
        values = pytree.tree_map(
            lambda each: each.meta["val"] if isinstance(each, torch.fx.Node) else each, (args, kwargs)
        )
        made.meta = {
            "stack_trace": self.origin.meta.get("stack_trace"),
            "val": target(*values[0], **values[1]),
        }
        return made

    def full(self, like: torch.fx.Node, number: int) -> torch.fx.Node:
        value = like.meta["val"]
        made = self.graph.call_function(
            aten.full.default, (list(value.shape), number), {"dtype": value.dtype, "pin_memory": False}
        )
        made.meta = {
            "stack_trace": self.origin.meta.get("stack_trace"),
            "val": torch.empty_like(value, memory_format=torch.contiguous_format),
        }
        return made


def _code(make: _Maker, bad: torch.fx.Node, number: int) -> torch.fx.Node:
    found = make(aten.any.default, bad) if bad.meta["val"].dim() else bad
    return make(aten.mul.Tensor, make(aten._to_copy.default, found, dtype=torch.int64), number)


_Bad = Sequence[tuple[torch.fx.Node, str]]


def _safe_index(
    make: _Maker, index: torch.fx.Node, size: int, *, wraps: bool, other: int | None = None
) -> tuple[torch.fx.Node, _Bad]:
    """Give an index that lies inside an axis of ``size``, and where the one given does not.

    ``other`` is a number beside the axis that an index may be, and that stays (``ignore_index``).
    """
    lowest = -size if wraps else 0
    known = make.constants.value(index)
    value = index.meta["val"]
    if not value.numel() or not size:
        return index, ()
    if known is not None and other is None:
        low, high = int(known.min()), int(known.max())
        if lowest <= low and high < size:
            return (index if low >= 0 else _wrapped(make, index, size)), ()
    bad = make(
        aten.logical_or.default, make(aten.lt.Scalar, index, lowest), make(aten.ge.Scalar, index, size)
    )
    safe = _wrapped(make, index, size) if wraps else index
    safe = make(aten.clamp.default, safe, 0, size - 1)
    if other is not None:
        ignored = make(aten.eq.Scalar, index, other)
        bad = make(aten.logical_and.default, bad, make(aten.logical_not.default, ignored))
        safe = make(aten.where.self, ignored, index, safe)
    return safe, [(bad, f"an index is out of range for an axis of {size}")]


def _wrapped(make: _Maker, index: torch.fx.Node, size: int) -> torch.fx.Node:
    negative = make(aten.lt.Scalar, index, 0)
    return make(aten.where.self, negative, make(aten.add.Scalar, index, size), index)


def _list_of_indices(make: _Maker, node: torch.fx.Node) -> _Bad:
    """``index`` and ``index_put``: one index, or none, for each axis; negative ones count from the end."""
    shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]  # the schema says that it is a tensor
    indices: list[Any] = list(node.args[1])  # type: ignore[arg-type]
    found: list[tuple[torch.fx.Node, str]] = []
    for axis, index in enumerate(indices):
        if not isinstance(index, torch.fx.Node) or index.meta["val"].dtype in (torch.bool, torch.uint8):
            continue
        indices[axis], bad = _safe_index(make, index, int(shape[axis]), wraps=True)
        found += bad
    node.args = (node.args[0], indices, *node.args[2:])
    return found


def _along(axis: int | None, place: int) -> Callable[[_Maker, torch.fx.Node], _Bad]:
    """Guard the index that is argument ``place``, along ``axis``, or along the axis that is argument 1."""

    def guard(make: _Maker, node: torch.fx.Node) -> _Bad:
        value = node.args[0].meta["val"]  # type: ignore[union-attr]
        along: Any = node.args[1] if axis is None else axis
        index = node.args[place]
        if not isinstance(index, torch.fx.Node) or not value.dim():
            return ()
        safe, bad = _safe_index(make, index, int(value.shape[along]), wraps=node.target in _WRAPPING)
        node.update_arg(place, safe)
        return bad

    return guard


_WRAPPING = (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, aten.take.default)


def _classes(make: _Maker, node: torch.fx.Node) -> _Bad:
    """``nll_loss``: a class for each row, or the one that is ignored."""
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    target: Any = node.args[1]
    ignored: Any = node.args[4] if len(node.args) > 4 else -100
    size = int(value.shape[1 if value.dim() > 1 else 0])
    safe, bad = _safe_index(make, target, size, wraps=False, other=int(ignored))
    node.update_arg(1, safe)
    return bad


def _divisor(make: _Maker, node: torch.fx.Node) -> _Bad:
    divisor = node.args[1]
    if not isinstance(divisor, torch.fx.Node) or node.meta["val"].is_floating_point():
        return ()
    value = divisor.meta["val"]
    if (
        value.is_floating_point()
        or value.dtype is torch.bool
        or not value.numel()
        or not node.meta["val"].numel()
    ):
        return ()
    known = make.constants.value(divisor)
    if known is not None and bool((known != 0).all()):
        return ()
    zero = make(aten.eq.Scalar, divisor, 0)
    safe = make(aten.where.self, zero, make.full(divisor, 1), divisor)
    node.update_arg(1, safe)
    return [(zero, "a whole number is divided by zero")]


_GUARDS: dict[Any, Callable[[_Maker, torch.fx.Node], _Bad]] = {
    aten.index.Tensor: _list_of_indices,
    aten.index_put.default: _list_of_indices,
    aten.index_put_.default: _list_of_indices,
    aten._unsafe_index.Tensor: _list_of_indices,
    aten._unsafe_index_put.default: _list_of_indices,
    aten._index_put_impl.default: _list_of_indices,
    aten.embedding.default: _along(0, 1),
    aten.index_select.default: _along(None, 2),
    aten.gather.default: _along(None, 2),
    aten.index_add.default: _along(None, 2),
    aten.index_copy.default: _along(None, 2),
    aten.index_reduce.default: _along(None, 2),
    aten.index_fill.int_Scalar: _along(None, 2),
    aten.index_fill.int_Tensor: _along(None, 2),
    aten.scatter.src: _along(None, 2),
    aten.scatter.value: _along(None, 2),
    aten.scatter.reduce: _along(None, 2),
    aten.scatter.value_reduce: _along(None, 2),
    aten.scatter_add.default: _along(None, 2),
    aten.scatter_reduce.two: _along(None, 2),
    aten.nll_loss_forward.default: _classes,
    aten.nll_loss2d_forward.default: _classes,
    aten.div.Tensor_mode: _divisor,
    aten.floor_divide.default: _divisor,
    aten.remainder.Tensor: _divisor,
    aten.fmod.Tensor: _divisor,
}
