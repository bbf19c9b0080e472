"""Recognises convolutions in linalg on tensors, by what their maps say, and looks through what their input is made of.

Padding, and the zeros that a transposed convolution's input is spread out with, become numbers of a
:class:`Dimension`. It writes nothing but views of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.transforms.conv.taps import Dimension
from torchsched.transforms.gemm.contraction import constant_zero
from torchsched.transforms.gemm.operands import narrow, owner_of
from torchsched.transforms.vectors.views import RESHAPES, root_of

__all__ = ["Convolution", "match_convolution"]

Value = Any
_DYNAMIC = -(1 << 63)
_FLOATS = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Convolution:
    """``out[n, g, c, o...] = initial + sum over i, k... of source[n, g, i, x(o, k)...] * weight[g, c, i, k...]``."""

    op: Operation
    source: Value
    """The input without padding: the batch, then groups and channels in one or several dimensions, then places."""
    weight: Value
    weight_axes: tuple[str, ...]
    """What runs over each dimension of the weight: ``g``, ``c``, ``i``, and the number of a place's dimension."""
    batch: int
    groups: int
    outputs: int
    """Channels of the result in a group."""
    inputs: int
    """Channels of the input in a group."""
    dimensions: tuple[Dimension, ...]
    initial: Value | None
    """What the sums begin with: ``None`` for zero, a number, a vector of one number a channel, or a tensor."""

    @property
    def element(self) -> Any:
        """The type that sums are kept in: f32 unless they are f64."""
        ir = bindings("ir")
        wide = str(self.op.results[0].type.element_type) == "f64"
        return ir.F64Type.get() if wide else ir.F32Type.get()

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape, with groups and channels in one dimension."""
        return (self.batch, self.groups * self.outputs, *(each.out for each in self.dimensions))

    @property
    def products(self) -> int:
        """Multiply-adds, without those that have a zero between the input's elements for a factor."""
        channels = self.batch * self.groups * self.outputs * self.inputs
        return channels * prod(each.products for each in self.dimensions)


def match_convolution(op: Operation) -> Convolution | None:
    """Read ``op`` as a convolution; ``None`` where it is none that this package can write."""
    if not op.name.startswith("linalg.") or len(op.operands) != 3 or len(op.results) != 1:
        return None
    if any(not _is_served(value) for value in op.operands) or not _sums_products(op):
        return None
    loops = _loops(op)
    if loops is None:
        return None
    source, weight, out = op.operands
    names, windows = loops
    sizes = dict(zip(names[1], weight.type.shape, strict=True))
    sizes.update(zip(names[2], out.type.shape, strict=True))
    rank = len(windows)
    root, spreads, lows = _unpadded(source, rank)
    dimensions = []
    for number, (stride, dilation) in enumerate(windows):
        spread, low = spreads[number], lows[number]
        if spread > 1 and stride > 1:
            return None
        dimensions.append(
            Dimension(
                out=sizes[f"o{number}"],
                inside=root.type.shape[root.type.rank - rank + number],
                kernel=sizes[str(number)],
                stride=stride,
                dilation=dilation,
                spread=spread,
                low=low,
            )
        )
    return Convolution(
        op,
        root,
        weight,
        names[1],
        batch=sizes["n"],
        groups=sizes.get("g", 1),
        outputs=sizes["c"],
        inputs=sizes["i"],
        dimensions=tuple(dimensions),
        initial=_initial(out, rank),
    )


def _is_served(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, bindings("ir").RankedTensorType) or not kind.has_static_shape:
        return False
    return str(kind.element_type) in _FLOATS and all(size > 0 for size in kind.shape)


# --- loops ----------------------------------------------------------------------------------------


def _loops(
    op: Operation,
) -> tuple[tuple[tuple[str, ...], ...], list[tuple[int, ...]]] | None:
    """Name the loops over the weight's and the result's dimensions; give each window's stride and dilation.

    ``None`` unless the input's dimensions are batch, group, channel and windows in this order, and the result's
    likewise.
    """
    linalg = bindings("dialects.linalg")
    maps = [attribute.value for attribute in linalg.get_indexing_maps(op)]
    weight, out = (_positions(list(map_.results)) for map_ in maps[1:])
    count = sum(isinstance(each, bindings("ir").AffineDimExpr) for each in maps[0].results)
    leading = _positions(list(maps[0].results)[:count])
    if weight is None or out is None or leading is None or count not in (2, 3):
        return None
    found = [_window(each, out) for each in list(maps[0].results)[count:]]
    windows = [each for each in found if each is not None]
    if not windows or len(windows) < len(found):
        return None
    batch, *groups, channel = leading
    places = [each[0] for each in windows]
    names: dict[Any, str] = {batch: "n", channel: "i", **dict.fromkeys(groups, "g")}
    for number, (o, k, _, _) in enumerate(windows):
        names[o], names[k] = f"o{number}", str(number)
    rest = [dim for dim in out if dim not in names]
    if len(rest) != 1 or out != [batch, *groups, rest[0], *places]:
        return None
    names[rest[0]] = "c"
    taps = [each[1] for each in windows]
    if sorted(weight) != sorted([*groups, rest[0], channel, *taps]) or maps[0].n_dims != len(names):
        return None
    named = tuple(tuple(names[dim] for dim in dims) for dims in (leading, weight, out))
    return named, [each[2:] for each in windows]


def _positions(expressions: Sequence[Any]) -> list[int] | None:
    """Give the loop that each expression is; ``None`` where one is something else, or two are the same."""
    ir = bindings("ir")
    each = [one.position for one in expressions if isinstance(one, ir.AffineDimExpr)]
    return each if len(set(each)) == len(list(expressions)) else None


def _window(expression: Any, out: Sequence[int]) -> tuple[int, int, int, int] | None:
    """Read ``o * stride + k * dilation``: the loops and their factors; ``None`` for anything else."""
    ir = bindings("ir")
    if not isinstance(expression, ir.AffineAddExpr):
        return None
    one, other = _scaled(expression.lhs), _scaled(expression.rhs)
    if one is None or other is None:
        return None
    if one[0] not in out:
        one, other = other, one
    if one[0] not in out or other[0] in out:
        return None
    return one[0], other[0], one[1], other[1]


def _scaled(expression: Any) -> tuple[int, int] | None:
    ir = bindings("ir")
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position, 1
    if isinstance(expression, ir.AffineMulExpr):
        dim, factor = expression.lhs, expression.rhs
        if isinstance(dim, ir.AffineConstantExpr):
            dim, factor = factor, dim
        if isinstance(dim, ir.AffineDimExpr) and isinstance(factor, ir.AffineConstantExpr):
            return (dim.position, factor.value) if factor.value > 0 else None
    return None


def _sums_products(op: Operation) -> bool:
    """Whether the body is ``out + a * b``, where numbers may be widened first."""
    block = op.regions[0].blocks[0]
    if len(block.arguments) != 3:
        return False
    a, b, out = block.arguments
    total = owner_of(block.operations[len(block.operations) - 1].operands[0])
    if total is None or total.name != "arith.addf" or out not in list(total.operands):
        return False
    first, second = total.operands
    product = owner_of(second if first == out else first)
    if product is None or product.name != "arith.mulf":
        return False
    known = ("linalg.yield", "arith.addf", "arith.mulf", "arith.extf")
    if any(each.operation.name not in known for each in block.operations):
        return False
    factors = [narrow(each) for each in product.operands]
    return factors in ([a, b], [b, a])


# --- what the input is made of --------------------------------------------------------------------


def _unpadded(value: Value, rank: int) -> tuple[Value, list[int], list[int]]:
    """Give what an input was before it was padded and spread out, and by how much along each of its last dimensions."""
    spreads, lows = [1] * rank, [0] * rank
    padded = False
    while True:
        owner = owner_of(value)
        if owner is None:
            break
        before = None
        if owner.name in RESHAPES:
            before = _through_reshape(owner, rank)
        elif owner.name == "tensor.pad" and _pads_zeros(owner, rank):
            before, padded = owner.operands[0], True
            low = [int(each) for each in owner.attributes["static_low"]][-rank:]
            lows = [total + each for total, each in zip(lows, low, strict=True)]
        elif owner.name == "tensor.extract_slice" and not padded and _cuts_places(owner, rank):
            # Of a slice that is padded, what was cut off would be read in place of the padding.
            before = owner.operands[0]
            low = [int(each) for each in owner.attributes["static_offsets"]][-rank:]
            lows = [total - each for total, each in zip(lows, low, strict=True)]
        elif owner.name == "tensor.insert_slice" and _spreads(owner, rank):
            offsets = [int(each) for each in owner.attributes["static_offsets"]][-rank:]
            spreads = [int(each) for each in owner.attributes["static_strides"]][-rank:]
            lows = [total + each for total, each in zip(lows, offsets, strict=True)]
            return _root_of_places(owner.operands[0], rank), spreads, lows
        if before is None:
            break
        value = before
    return value, spreads, lows


def _root_of_places(value: Value, rank: int) -> Value:
    while (owner := owner_of(value)) is not None and owner.name in RESHAPES:
        before = _through_reshape(owner, rank)
        if before is None:
            break
        value = before
    return value


def _through_reshape(owner: Operation, rank: int) -> Value | None:
    """Look through a reshape of the batch and the channels that leaves the places as they are."""
    source, result = owner.operands[0], owner.results[0]
    if not source.type.has_static_shape or source.type.rank <= rank:
        return None
    same = list(source.type.shape)[-rank:] == list(result.type.shape)[-rank:]
    return source if same and source.type.shape[0] == result.type.shape[0] else None


def _pads_zeros(owner: Operation, rank: int) -> bool:
    low = [int(each) for each in owner.attributes["static_low"]]
    high = [int(each) for each in owner.attributes["static_high"]]
    block = owner.regions[0].blocks[0]
    inner = list(block.operations)
    places = len(low) - rank
    if not owner.operands[0].type.has_static_shape or any(each < 0 for each in (*low, *high)):
        return False
    if any(low[:places]) or any(high[:places]) or len(inner) != 1:
        return False
    return constant_zero(inner[0].operands[0])


def _static(owner: Operation, name: str) -> list[int] | None:
    numbers = [int(each) for each in owner.attributes[f"static_{name}"]]
    return None if _DYNAMIC in numbers else numbers


def _cuts_places(owner: Operation, rank: int) -> bool:
    """Whether a slice leaves out only places at the front; what it leaves out at the end is never asked for."""
    offsets, sizes, steps = (_static(owner, name) for name in ("offsets", "sizes", "strides"))
    shape = list(owner.operands[0].type.shape)
    if offsets is None or sizes is None or steps is None or any(step != 1 for step in steps):
        return False
    if len(shape) != owner.results[0].type.rank:
        return False
    leading = len(shape) - rank
    return sizes[:leading] == shape[:leading] and not any(offsets[:leading])


def _spreads(owner: Operation, rank: int) -> bool:
    """Whether all of a tensor goes into zeros, with steps between its places."""
    source, into = list(owner.operands)[:2]
    offsets, sizes, steps = (_static(owner, name) for name in ("offsets", "sizes", "strides"))
    if offsets is None or sizes is None or steps is None or not source.type.has_static_shape:
        return False
    zeros = owner_of(root_of(into, RESHAPES))
    if zeros is None or zeros.name != "linalg.fill" or not constant_zero(zeros.operands[0]):
        return False
    leading = source.type.rank - rank
    if list(source.type.shape) != sizes or leading < 2:
        return False
    whole = list(into.type.shape)[:leading]
    return sizes[:leading] == whole and not any(offsets[:leading]) and set(steps[:leading]) == {1}


def _initial(value: Value, rank: int) -> Value | None:
    """Give what sums begin with: nothing, a number, a number for each channel, or a tensor."""
    root = root_of(value, RESHAPES)
    owner = owner_of(root)
    if owner is None:
        return value
    if owner.name == "linalg.fill":
        number = owner.operands[0]
        return None if constant_zero(number) else number
    # Batch and channel apart: what groups have of their own is still one dimension.
    return (_by_channel(owner) if root.type.rank == rank + 2 else None) or value


def _by_channel(owner: Operation) -> Value | None:
    """Give the bias that a tensor repeats at every place."""
    if owner.name == "linalg.broadcast":
        dims = [int(each) for each in owner.attributes["dimensions"]]
        source = owner.operands[0]
        rank = owner.results[0].type.rank
        return source if [each for each in range(rank) if each not in dims] == [1] else None
    if owner.name != "linalg.generic" or len(owner.operands) != 2:
        return None
    block = owner.regions[0].blocks[0]
    inner = list(block.operations)
    if len(inner) != 1 or inner[0].operands[0] != block.arguments[0]:
        return None
    read, written = (attribute.value for attribute in owner.attributes["indexing_maps"])
    places = _positions(list(written.results))
    return owner.operands[0] if places and _positions(list(read.results)) == [places[1]] else None
