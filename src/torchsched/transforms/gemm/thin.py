"""Products with one thin side, such as a matrix times a vector: the large operand is read once, where it lies.

Packing would read and write it once more, and it is all the traffic there is. Where its rows lie along the sum, each
result is a dot product, and several rows share the thin operand's vector (``dots``). Where they lie along the
results, each row of it is added to a strip of sums that stays in the first-level cache (``updates``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from torchsched.transforms.gemm.blocks import Shape
from torchsched.transforms.gemm.emit import Emitter, Index, Slice, Value
from torchsched.transforms.gemm.microkernel import add_products
from torchsched.transforms.gemm.operands import Operand
from torchsched.transforms.gemm.product import Place, Product
from torchsched.transforms.gemm.sharing import Space, over_batches, part_of

__all__ = ["Form", "Shares", "Thin", "emit_thin", "share_thin", "thin_of"]

THIN_DOTS, THIN_UPDATES = 8, 5
"""Rows or columns of a thin side, at most."""
_STRIP_BYTES = 16 << 10
"""Sums of a strip: half of a first-level cache, where the other half takes the rows that stream by."""
_THREAD_BYTES = 256 << 10
"""Bytes of the large operand below which one thread reads it alone."""


class Form(StrEnum):
    """How a thin product is computed."""

    DOTS = "dots"
    UPDATES = "updates"


@dataclass(frozen=True, slots=True)
class Thin:
    """A way to compute a thin product."""

    form: Form
    own: str
    """The large operand's loop over results, ``m`` or ``n``."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How many threads share the batches, or else the large operand of each."""

    over_batches: int = 1
    inside: int = 1


def thin_of(product: Product) -> Thin | None:
    """Say how ``product`` is computed if it is thin."""
    shape, contraction = product.shape, product.contraction
    if shape.m <= THIN_DOTS and contraction.rhs.contiguous == "k":
        return Thin(Form.DOTS, own="n")
    if shape.n <= THIN_DOTS and contraction.lhs.contiguous == "k":
        return Thin(Form.DOTS, own="m")
    if shape.m <= THIN_UPDATES and contraction.rhs.contiguous == "n":
        return Thin(Form.UPDATES, own="n")
    return None


def share_thin(shape: Shape, bytes_each: int, threads: int) -> Shares:
    """Share a thin product out: the batches where there is one for each thread, else the rows of each."""
    large = max(shape.m, shape.n) * shape.k * bytes_each
    if threads == 1 or shape.batches * large < _THREAD_BYTES:
        return Shares()
    if shape.batches >= threads or large < _THREAD_BYTES:
        return Shares(over_batches=min(shape.batches, threads))
    return Shares(inside=threads)


def emit_thin(e: Emitter, product: Product, thin: Thin) -> Value:
    """Write a thin product's loops; give its results."""
    element = product.contraction.rhs.element
    shares = share_thin(product.shape, max(1, element.width // 8), product.machine.threads)
    writer = (_Dots if thin.form is Form.DOTS else _Updates)(e, product, thin.own, shares)
    return over_batches(e, product, shares.over_batches, writer.spaces, writer.one)


class _Thin:
    """What both forms share: the large operand, the thin one, and the threads over the large one's results."""

    unit: int
    """Results along the large operand that are computed together."""
    spaces: list[tuple[Space, int]]

    def __init__(self, e: Emitter, product: Product, own: str, shares: Shares) -> None:
        self.e, self.product, self.shares = e, product, shares
        contraction = product.contraction
        self.own, self.other = own, "m" if own == "n" else "n"
        self.large, self.thin = contraction.rhs, contraction.lhs
        if own == "m":
            self.large, self.thin = self.thin, self.large
        self.size, self.count = contraction.sizes[self.own], contraction.sizes[self.other]
        self.k, self.lanes = product.shape.k, product.numbers.lanes
        self.vector = e.vector_type(self.lanes, contraction.element)

    def shared(self, at: Mapping[str, Index], spaces: Sequence[Value], place: Place) -> list[Value]:
        """Write :meth:`part` for all results, each thread's part in a turn of its own."""
        e, inside = self.e, self.shares.inside
        groups = -(-self.size // self.unit)
        if inside == 1:
            return self.part(at, spaces, place, (0, self.size))

        def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
            lower, upper = part_of(e, (0, groups), numbers[0], inside)
            begin, end = e.mul(lower, self.unit), e.least(e.mul(upper, self.unit), self.size)
            own = [
                space.copy_of(e, copies, numbers[0])
                for (space, _), copies in zip(self.spaces, outs, strict=False)
            ]
            offsets, sizes = [], []
            for axis in place.axes:
                first = {self.own: begin, self.other: 0}.get(axis, at.get(axis, 0))
                offsets.append(first)
                sizes.append({self.own: e.sub(end, begin), self.other: self.count}.get(axis, 1))
            kept = tuple(axis for axis in place.axes if axis in (self.own, self.other))
            dropped = [number for number, axis in enumerate(place.axes) if axis not in kept]
            mine = Place(e.slice(outs[-1], offsets, sizes, drop=dropped), kept, {self.own: begin})
            done = self.part(at, [value for value, *_ in own], mine, (begin, end))
            where = [(offsets_, sizes_) for _, offsets_, sizes_ in own]
            return [
                (value, at, size) for value, (at, size) in zip(done, [*where, (offsets, sizes)], strict=True)
            ]

        return e.forall([inside], [*spaces, place.value], worker)

    def part(
        self, at: Mapping[str, Index], spaces: Sequence[Value], place: Place, range_: tuple[Index, Index]
    ) -> list[Value]:
        """Compute a range of results; give the spaces and the results."""
        raise NotImplementedError


class _Dots(_Thin):
    """Each result a dot product of two rows; ``unit`` rows of the large operand meet all rows of the thin one."""

    def __init__(self, e: Emitter, product: Product, own: str, shares: Shares) -> None:
        super().__init__(e, product, own, shares)
        # Eight sums keep two multiply-adds a clock busy over their latency of four; more rows share the thin operand's
        # vectors until the sums fill three quarters of the registers.
        self.unit = max(1, min(8, product.machine.registers * 3 // 4 // self.count))
        self.spaces = []
        self.copies = self.thin.contiguous != "k"
        if self.copies:
            self.spaces.append((Space((self.count, self.k), product.factor), 1))
        self.width = self.lanes * product.numbers.pair

    def one(self, at: Mapping[str, Index], spaces: Sequence[Value], places: Sequence[Place]) -> list[Value]:
        """Compute one product."""
        if not self.copies:
            return self.shared(at, [], places[0])
        rows = self._copied(at, spaces[0])
        large, thin, self.thin = self.spaces, self.thin, Operand(rows, (self.other, "k"))
        self.spaces = []
        done = self.shared(at, [], places[0])
        self.spaces, self.thin = large, thin
        return [rows, *done]

    def _copied(self, at: Mapping[str, Index], into: Value) -> Value:
        """Copy the thin operand so that its rows lie along the sum; it is read once for every row of the large one."""
        e = self.e

        def line(row: Index, out: Value) -> list[Value]:
            return e.carry((0, self.k, 1), [out], lambda step, out: [move(row, step, out)])

        def move(row: Index, step: Index, out: Value) -> Value:
            number = e.read(self.thin.value, self.thin.places({**at, self.other: row, "k": step}), 1)
            number = e.convert(number, self.product.factor)
            return e.write(number, out, [row, step])

        return e.carry((0, self.count, 1), [into], line)[0]

    def part(
        self, at: Mapping[str, Index], spaces: Sequence[Value], place: Place, range_: tuple[Index, Index]
    ) -> list[Value]:
        """Compute a range of rows, several at a time and what is left one by one."""
        e = self.e
        begin, end = range_
        whole = e.add(begin, e.mul(e.div(e.sub(end, begin), self.unit), self.unit))
        (out,) = e.carry((begin, whole, self.unit), [place.value], partial(self._rows, at, place, self.unit))
        return e.carry((whole, end, 1), [out], partial(self._rows, at, place, 1))

    def _rows(
        self, at: Mapping[str, Index], place: Place, rows: int, first: Index, out: Value
    ) -> list[Value]:
        e = self.e
        whole = self.k // self.width * self.width
        sums = [e.zeros(self.vector)] * (rows * self.count)
        turn = partial(self._add, at, first, rows, None)
        sums = e.carry((0, whole, self.width), sums, turn)
        if whole < self.k:
            sums = self._add(at, first, rows, e.mask(self.width, self.k - whole), whole, *sums)
        for each, total in enumerate(sums):
            row, column = divmod(each, self.count)
            cell = {**at, self.own: e.add(first, row), self.other: column}
            out = self._store(total, cell, replace(place, value=out))
        return [out]

    def _add(
        self,
        at: Mapping[str, Index],
        first: Index,
        rows: int,
        mask: Value | None,
        step: Index,
        *sums: Value,
    ) -> list[Value]:
        e = self.e
        thin = [self.read(self.thin, {**at, self.other: each, "k": step}, mask) for each in range(self.count)]
        after = []
        for row in range(rows):
            large = self.read(self.large, {**at, self.own: e.add(first, row), "k": step}, mask)
            for each, vector in enumerate(thin):
                after.append(add_products(e, sums[row * self.count + each], large, vector))
        return after

    def read(self, operand: Operand, at: Mapping[str, Index], mask: Value | None = None) -> Value:
        """Read a vector of an operand, in the type that is multiplied."""
        e = self.e
        return e.convert(e.read(operand.value, operand.places(at), self.width, mask), self.product.factor)

    def _store(self, total: Value, cell: Mapping[str, Index], place: Place) -> Value:
        e = self.e
        sum_ = e.total(total)
        initial = self.product.initial(e, cell, 1)
        if initial is not None:
            sum_ = e.plus(sum_, initial)
        return e.write(self.product.finished(e, sum_, cell), place.value, place.indices(e, cell))


class _Updates(_Thin):
    """Rows of the large operand, each times a number of the thin one, added to a strip of sums."""

    def __init__(self, e: Emitter, product: Product, own: str, shares: Shares) -> None:
        super().__init__(e, product, own, shares)
        self.unit = self.lanes
        bytes_each = product.contraction.element.width // 8
        most = max(_STRIP_BYTES // (bytes_each * self.count), self.lanes)
        self.strip = min(most // self.lanes, -(-self.size // self.lanes)) * self.lanes
        # Rows of the large operand that a strip takes at a time: their numbers of the thin one stay in registers.
        self.depth = max(1, min(8, product.machine.registers // 2 // self.count))
        self.spaces = [(Space((self.count, self.strip), product.contraction.element), shares.inside)]

    def one(self, at: Mapping[str, Index], spaces: Sequence[Value], places: Sequence[Place]) -> list[Value]:
        """Compute one product."""
        return self.shared(at, spaces, places[0])

    def part(
        self, at: Mapping[str, Index], spaces: Sequence[Value], place: Place, range_: tuple[Index, Index]
    ) -> list[Value]:
        """Compute a range of columns, a strip at a time."""
        e = self.e
        begin, end = range_

        def strip(first: Index, sums: Value, out: Value) -> list[Value]:
            width = e.least(self.strip, e.sub(end, first))
            sums = self._cleared(sums, width)
            whole = self.k // self.depth * self.depth
            (sums,) = e.carry(
                (0, whole, self.depth), [sums], partial(self._add, at, (first, width), self.depth)
            )
            (sums,) = e.carry((whole, self.k, 1), [sums], partial(self._add, at, (first, width), 1))
            return [sums, self._stored(at, (first, width), sums, replace(place, value=out))]

        return e.carry((begin, end, self.strip), [spaces[0], place.value], strip)

    def _cleared(self, sums: Value, width: Index) -> Value:
        e = self.e

        def turn(column: Index, out: Value) -> list[Value]:
            for row in range(self.count):
                out = e.write(e.zeros(self.vector), out, [row, column])
            return [out]

        return e.carry((0, width, self.lanes), [sums], turn)[0]

    def _add(
        self, at: Mapping[str, Index], strip: tuple[Index, Index], depth: int, step: Index, sums: Value
    ) -> list[Value]:
        """Add ``depth`` rows of the large operand to a strip."""
        e = self.e
        first, width = strip
        numbers = [
            [
                e.splat(self._number({**at, self.other: row, "k": e.add(step, each)}), self.lanes)
                for each in range(depth)
            ]
            for row in range(self.count)
        ]

        def turn(mask: Value | None, column: Index, out: Value) -> list[Value]:
            now = [e.read(out, [row, column], self.lanes) for row in range(self.count)]
            for each in range(depth):
                place = {**at, self.own: e.add(first, column), "k": e.add(step, each)}
                large = e.read(self.large.value, self.large.places(place), self.lanes, mask)
                large = e.convert(large, self.product.contraction.element)
                now = [e.multiply_add(row[each], large, sum_) for row, sum_ in zip(numbers, now, strict=True)]
            for row, sum_ in enumerate(now):
                out = e.write(sum_, out, [row, column])
            return [out]

        return self._across(width, [sums], turn)

    def _number(self, at: Mapping[str, Index]) -> Value:
        number = self.e.read(self.thin.value, self.thin.places(at), 1)
        return self.e.convert(number, self.product.contraction.element)

    def _stored(
        self, at: Mapping[str, Index], strip: tuple[Index, Index], sums: Value, place: Place
    ) -> Value:
        e = self.e
        first, width = strip

        def turn(mask: Value | None, column: Index, out: Value) -> list[Value]:
            for row in range(self.count):
                cell = {**at, self.own: e.add(first, column), self.other: row}
                sum_ = e.read(sums, [row, column], self.lanes)
                initial = self.product.initial(e, cell, self.lanes, mask)
                if initial is not None:
                    sum_ = e.plus(sum_, initial)
                sum_ = self.product.finished(e, sum_, cell, mask)
                out = e.write(sum_, out, place.indices(e, cell), mask)
            return [out]

        return self._across(width, [place.value], turn)[0]

    def _across(self, width: Index, values: Sequence[Value], turn) -> list[Value]:
        """Write ``turn`` for each vector of a strip; of the last one only what is left."""
        e = self.e
        whole = e.mul(e.div(width, self.lanes), self.lanes)
        values = e.carry((0, whole, self.lanes), values, partial(turn, None))

        def rest(column: Index, *now: Value) -> list[Value]:
            return turn(e.mask(self.lanes, e.sub(width, column)), column, *now)

        return e.carry((whole, width, self.lanes), values, rest)
