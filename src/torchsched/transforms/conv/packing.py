"""Brings a convolution's operands into the order that its innermost loop reads: rows padded, weights packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torchsched.transforms.conv.matching import Convolution
from torchsched.transforms.conv.tiles import Tile
from torchsched.transforms.gemm.emit import Emitter, Index, Slice, Value
from torchsched.transforms.gemm.sharing import part_of

__all__ = ["Input", "packed_input", "packed_weights"]


@dataclass(frozen=True, slots=True)
class Input:
    """The input as the loops read it."""

    value: Value
    copied: bool
    """Whether it is a copy, in which the channels of a row lie together: ``[batch][place...][channel][row]``."""

    def places(self, batch: Index, channel: Index, outer: Sequence[Index], place: Index) -> list[Index]:
        """Where it has an element."""
        return [batch, *outer, channel, place] if self.copied else [batch, channel, *outer, place]


def packed_input(e: Emitter, convolution: Convolution) -> Input:
    """Give the input with the margins of its rows, and in the type of the sums: as it is where it has neither to get.

    Rows that do not exist are skipped by the loops over taps, and need no margins. The copy is an operation of its
    own, which another transform writes as vectors. In it the channels of a row lie together: where they lie a power
    of two apart, as they came, they fall into one set of the first-level cache, which cannot hold them.
    """
    *outer, last = convolution.dimensions
    inside = [each.inside for each in convolution.dimensions]
    shape = [convolution.batch, convolution.groups * convolution.inputs, *inside]
    source = e.reshaped(convolution.source, shape)
    if not any(last.margins) and source.type.element_type == convolution.element:
        return Input(source, copied=False)
    padded = [*shape[:-1], last.inside + sum(last.margins)]
    if padded != shape:
        source = _padded(e, source, [*[(0, 0)] * (len(outer) + 2), last.margins], padded)
    order = [0, *range(2, len(shape) - 1), 1, len(shape) - 1]
    into = e.empty([padded[each] for each in order], convolution.element)
    return Input(_copied(e, source, into, order), copied=True)


def _padded(e: Emitter, source: Value, margins: Sequence[tuple[int, int]], shape: Sequence[int]) -> Value:
    ir = e.ir
    element = source.type.element_type
    made = ir.Operation.create(
        "tensor.pad",
        results=[e.tensor_type(shape, element)],
        operands=[source],
        attributes={
            "static_low": ir.DenseI64ArrayAttr.get([low for low, _ in margins]),
            "static_high": ir.DenseI64ArrayAttr.get([high for _, high in margins]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
        },
        regions=1,
    )
    zero = e.zero(element)
    zero.owner.move_before(made)
    block = made.regions[0].blocks.append(*[ir.IndexType.get()] * len(shape))
    with ir.InsertionPoint(block):
        ir.Operation.create("tensor.yield", operands=[zero])
    return made.results[0]


def _copied(e: Emitter, source: Value, into: Value, order: Sequence[int]) -> Value:
    """Copy a tensor into one that has its dimensions in another order, and perhaps a wider type."""
    ir = e.ir
    rank = source.type.rank
    read = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    written = ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(dim) for dim in order]))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = ir.Operation.create(
        "linalg.generic",
        results=[into.type],
        operands=[source, into],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([read, written]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    element = into.type.element_type
    block = made.regions[0].blocks.append(source.type.element_type, element)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[e.convert(block.arguments[0], element)])
    return made.results[0]


# --- weights --------------------------------------------------------------------------------------


def packed_weights(e: Emitter, convolution: Convolution, tile: Tile, threads: int) -> Value:
    """Give the weights with a block's channels side by side: ``[group][block][tap...][input channel][channel]``.

    Where phases lie side by side, the last dimension's taps are ordered by where they read, and a phase without a tap
    there has zeros. Lanes without a channel are left as they are: nobody reads their sums.
    """
    return _Weights(e, convolution, tile).packed(threads)


_SHARED = 1 << 15
"""Weights that take longer to pack than it takes to wake a thread."""


class _Weights:
    def __init__(self, e: Emitter, convolution: Convolution, tile: Tile) -> None:
        self.e, self.convolution, self.tile = e, convolution, tile
        self.channels = tile.channels(convolution.outputs)
        self.kernels = [each.kernel for each in convolution.dimensions[:-1]]
        self.last = convolution.dimensions[-1]
        self.least, largest = self.last.shifts
        self.slots = largest - self.least + 1 if tile.phases > 1 else self.last.kernel
        blocks = -(-convolution.outputs // self.channels)
        self.shape = [
            convolution.groups,
            blocks,
            *self.kernels,
            self.slots,
            convolution.inputs,
            tile.vectors * tile.lanes,
        ]

    def packed(self, threads: int) -> Value:
        """Pack all of them; threads share the input's channels."""
        e, shape = self.e, self.shape
        inputs = self.convolution.inputs
        out = e.empty(shape, self.convolution.element)
        count = min(threads, inputs) if prod(shape) >= _SHARED else 1
        if count == 1:
            return self._range((0, inputs), 0, out)

        def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
            lower, upper = part_of(e, (0, inputs), numbers[0], count)
            offsets: list[Index] = [*[0] * (len(shape) - 2), lower, 0]
            sizes: list[Index] = [*shape[:-2], e.sub(upper, lower), shape[-1]]
            part = e.slice(outs[0], offsets, sizes)
            return [(self._range((lower, upper), lower, part), offsets, sizes)]

        return e.forall([count], [out], worker)[0]

    def _range(self, inputs: tuple[Index, Index], origin: Index, out: Value) -> Value:
        """Pack a range of the input's channels; ``out`` begins with ``origin``."""
        e = self.e
        ranges = [(0, self.shape[0]), (0, self.shape[1]), inputs, *((0, kernel) for kernel in self.kernels)]

        def nested(at: tuple[Index, ...], out: Value) -> list[Value]:
            if len(at) < len(ranges):
                return e.carry((*ranges[len(at)], 1), [out], lambda i, out: nested((*at, i), out))
            return self._taps(at, origin, out)

        return nested((), out)[0]

    def _taps(self, at: tuple[Index, ...], origin: Index, out: Value) -> list[Value]:
        """Pack the last dimension's taps for one channel of the input, and one tap of each other dimension."""
        e, outputs = self.e, self.convolution.outputs
        group, block, channel, *taps = at
        first = e.mul(block, self.channels)
        if outputs % self.channels:
            first = e.least(first, outputs - self.channels)
        names = {"g": group, "i": channel, **{str(number): tap for number, tap in enumerate(taps)}}

        def move(tap: Index | None, slot: Index, phase: int, lane: Index, out: Value) -> Value:
            number: Any = e.zero(self.convolution.element)
            if tap is not None:
                places = {**names, "c": e.add(first, lane), str(len(taps)): tap}
                there = [places[axis] for axis in self.convolution.weight_axes]
                number = e.convert(e.read(self.convolution.weight, there, 1), self.convolution.element)
            column = e.add(lane, phase * outputs)
            return e.write(number, out, [group, block, *taps, slot, e.sub(channel, origin), column])

        def plain(tap: Index, out: Value) -> list[Value]:
            lanes = (0, self.channels, 1)
            return e.carry(lanes, [out], lambda lane, out: [move(tap, tap, 0, lane, out)])

        def together(lane: Index, out: Value) -> list[Value]:
            for slot in range(self.slots):
                for phase in range(self.tile.phases):
                    out = move(self.last.tap_at(phase, self.least + slot), slot, phase, lane, out)
            return [out]

        if self.tile.phases == 1:
            return e.carry((0, self.slots, 1), [out], plain)
        return e.carry((0, self.channels, 1), [out], together)
