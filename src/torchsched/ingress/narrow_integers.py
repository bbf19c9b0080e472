"""Computes with 8-bit integers in 32 bits, because torch-mlir does not get them right in 8.

MLIR's integers have no sign, and torch-mlir's lowerings forget that of ``uint8``: a quotient, a sum, an order or a
conversion of 200 comes out as that of -56. A constant of ``uint8`` it refuses. A product with a number, a remainder
and a maximum of 8-bit integers crash the process. So no 8-bit integer is computed with, and ``uint8`` is only told
apart from ``int8`` where it is widened. Knows fx nodes and no MLIR.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

__all__ = ["widen_narrow_integers"]

aten = torch.ops.aten
_NARROW = (torch.uint8, torch.int8)
_WIDE = torch.int32

_MOVES = frozenset(
    {
        "_to_copy", "alias", "as_strided", "cat", "clone", "constant_pad_nd", "copy", "expand", "flip", "gather",
        "index", "index_select", "permute", "repeat", "scatter", "select", "slice", "slice_scatter", "split",
        "split_with_sizes", "squeeze", "stack", "transpose", "unsqueeze", "view", "where",
    }
)  # fmt: skip
"""Operations that compute nothing: they move elements, or convert them, and are right as they are."""


def widen_narrow_integers(graph: torch.fx.Graph) -> None:
    """Rewrite each computation on ``uint8`` or ``int8`` tensors as one on ``int32``, and cut what it gives."""
    for node in list(graph.nodes):
        if node.op != "call_function" or _computes_nothing(node):
            continue
        if any(_is_narrow(each) for each in node.all_input_nodes):
            _widen(graph, node)
        elif _is_narrow(node) and node.kwargs.get("dtype") in _NARROW:
            # It makes a narrow tensor out of none, such as a tensor full of a number.
            node.kwargs = {**node.kwargs, "dtype": _WIDE}
            _cut(graph, node)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten._to_copy.default:
            _convert_by_hand(graph, node)
    for node in graph.nodes:
        _forget_sign(node)


def _computes_nothing(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    packet = getattr(node.target, "overloadpacket", None)
    return packet is None or packet.__name__.rpartition(".")[2] in _MOVES


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_narrow(node: torch.fx.Node) -> bool:
    return _dtype(node) in _NARROW


def _widen(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    with graph.inserting_before(node):
        wide = {
            each: _convert(graph, each, _WIDE, origin=node)
            for each in node.all_input_nodes
            if _is_narrow(each)
        }
    for narrow, converted in wide.items():
        node.replace_input_with(narrow, converted)
    if _is_narrow(node):
        _cut(graph, node)
        return
    if not isinstance(node.meta["val"], tuple | list):
        return
    # The values of max, sort and topk: narrow, beside indices that are not.
    node.meta["val"] = tuple(each.to(_WIDE) if each.dtype in _NARROW else each for each in node.meta["val"])
    for part in list(node.users):
        if _is_narrow(part):
            _cut(graph, part)


def _cut(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Let ``node``, which computes in 32 bits now, be followed by the conversion to what it was."""
    narrow = node.meta["val"].dtype
    users = list(node.users)
    _set_value(node, node.meta["val"].to(_WIDE))
    with graph.inserting_after(node):
        back = _convert(graph, node, narrow, origin=node)
    for user in users:
        user.replace_input_with(node, back)


def _convert_by_hand(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Let a conversion from or to ``uint8`` go through ``int32``, where it is one of bits alone."""
    (origin,) = node.all_input_nodes
    before, after = _dtype(origin), _dtype(node)
    if torch.uint8 not in (before, after) or before is after or after is None:
        return
    with graph.inserting_before(node):
        wide = origin if before is _WIDE else _convert(graph, origin, _WIDE, origin=node)
        if before is torch.uint8:
            # Of the int8 that it will be: the sign goes, and leaves the value.
            wide = graph.call_function(aten.bitwise_and.Scalar, (wide, 255))
            wide.meta = {"stack_trace": node.meta.get("stack_trace"), "val": origin.meta["val"].to(_WIDE)}
    if after is _WIDE:
        node.replace_all_uses_with(wide)
        graph.erase_node(node)
    else:
        node.replace_input_with(origin, wide)


def _forget_sign(node: torch.fx.Node) -> None:
    value: Any = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        if value.dtype is torch.uint8:
            _set_value(node, value.to(torch.int8))
    elif isinstance(value, tuple | list):
        signed = [
            each.to(torch.int8) if isinstance(each, torch.Tensor) and each.dtype is torch.uint8 else each
            for each in value
        ]
        node.meta["val"] = type(value)(signed)
    if node.kwargs.get("dtype") is torch.uint8:
        node.kwargs = {**node.kwargs, "dtype": torch.int8}


def _set_value(node: torch.fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    # What torch-mlir's importer looks at first.
    node.meta.pop("tensor_meta", None)


def _convert(
    graph: torch.fx.Graph, node: torch.fx.Node, dtype: torch.dtype, *, origin: torch.fx.Node
) -> torch.fx.Node:
    converted = graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    converted.meta = {"stack_trace": origin.meta.get("stack_trace"), "val": node.meta["val"].to(dtype)}
    return converted
