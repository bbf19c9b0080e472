"""Running sums and products (``cumsum``, ``cumprod``) over vectors.

Along contiguous elements a vector is scanned in its register, by log2(n) shuffles, and what came before is carried
as one number; along any other dimension vectors lie across, and carry a number a lane. f32 is carried in f64, as
eager does, so that the last of a million sums is as right as the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.targets import Target
from torchsched.transforms.vectors.combining import combine, neutral
from torchsched.transforms.vectors.lanes import converted
from torchsched.transforms.vectors.nests import Combiner
from torchsched.transforms.vectors.numbers import bits_of, is_float
from torchsched.transforms.vectors.parts import Part
from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["vectorise_scans"]

Value = Any

_COMBINERS = {
    "arith.addf": Combiner.ADD,
    "arith.addi": Combiner.ADD,
    "arith.mulf": Combiner.MUL,
    "arith.muli": Combiner.MUL,
}


def vectorise_scans(module: Module, *, target: Target, grain: int = 32768) -> None:
    """Write each inclusive scan that adds or multiplies as loops over vectors; other scans stay as they are.

    Args:
        module: On tensors.
        target: What the code is for.
        grain: Elements below which one thread does all.
    """
    ir = bindings("ir")
    with module.context, ir.Location.unknown(module.context):
        for function in module.body.operations:
            if function.operation.name != "func.func":
                continue
            for block in function.operation.regions[0].blocks:
                for view in list(block.operations):
                    combiner = _combiner(view.operation)
                    if combiner is not None:
                        _write(view.operation, combiner, target, grain)


def _combiner(operation: Operation) -> Combiner | None:
    """Say how a scan combines, if it is one that can be written here."""
    if operation.name != "tm_tensor.scan" or not operation.attributes["inclusive"].value:
        return None
    whole, last = operation.results
    if not whole.type.has_static_shape or 0 in list(whole.type.shape) or list(last.uses):
        return None
    block = operation.regions[0].blocks[0]
    first, *rest = [each.operation for each in block.operations]
    if len(rest) != 1 or set(first.operands) != set(block.arguments):
        return None
    return _COMBINERS.get(first.name) if list(rest[0].operands) == list(first.results) else None


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan, seen as one over the second dimension of two or of three."""

    combiner: Combiner
    sizes: tuple[int, ...]
    """Outer, scanned, and inner where there is more than one inner element."""
    element: Any
    computed: Any
    carried: Any
    """The type of what is carried from element to element."""
    width: int

    @property
    def length(self) -> int:
        return self.sizes[1]


def _scan_of(operation: Operation, combiner: Combiner, target: Target) -> _Scan:
    ir = bindings("ir")
    shape = list(operation.operands[0].type.shape)
    axis = operation.attributes["dimension"].value
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    element = operation.operands[0].type.element_type
    f32 = ir.F32Type.get()
    computed = f32 if str(element) in ("bf16", "f16") else element
    carried = ir.F64Type.get() if str(element) == "f32" else computed
    along = shape[axis] if inner == 1 else inner
    lanes = max(1, target.vector_bits // max(8, bits_of(computed)))
    return _Scan(
        combiner,
        (outer, shape[axis]) if inner == 1 else (outer, shape[axis], inner),
        element,
        computed,
        carried,
        min(lanes, 1 << (along - 1).bit_length()),
    )


def _write(operation: Operation, combiner: Combiner, target: Target, grain: int) -> None:
    ir = bindings("ir")
    scan = _scan_of(operation, combiner, target)
    threads = target.code_threads if math.prod(scan.sizes) >= grain else 1
    result = operation.results[0]
    with ir.InsertionPoint(operation), operation.location:
        writer = Writer()
        given = writer.reshaped(operation.operands[0], scan.sizes)
        written = _ScanWriter(writer, scan, given).write(writer.empty(scan.sizes, scan.element), threads)
        result.replace_all_uses_with(writer.reshaped(written, list(result.type.shape)))
    operation.erase()


class _ScanWriter:
    def __init__(self, writer: Writer, scan: _Scan, given: Value) -> None:
        self._writer = writer
        self._scan = scan
        self._given = given
        self._boolean = writer.vector_type(scan.width, writer.ir.IntegerType.get_signless(1))

    def write(self, out: Value, threads: int) -> Value:
        """Write the scan into ``out``: the outer dimension is divided among threads, or the inner one."""
        writer, sizes = self._writer, self._scan.sizes
        axis = 0 if sizes[0] >= threads else len(sizes) - 1
        if threads < 2 or axis == 1 or sizes[axis] < threads:
            return self._rows(out, [0] * len(sizes), sizes)
        chunk = -(-sizes[axis] // threads)
        if axis == 2:
            chunk = -(-chunk // 64) * 64  # no two threads write one cache line
        loop = writer.scf.ForallOp([0], [-(-sizes[axis] // chunk)], [1], [out])
        with writer.ir.InsertionPoint(loop.body):
            low = writer.times(loop.induction_variables[0], chunk)
            whole = sizes[axis] % chunk == 0
            length = chunk if whole else writer.least(writer.sub(sizes[axis], low), chunk)
            offsets: list[Index] = [0] * len(sizes)
            extents: list[Index] = list(sizes)
            offsets[axis], extents[axis] = low, length
            part = Part(offsets, extents, self._scan.element)
            written = self._rows(part.extract(writer, loop.inner_iter_args[0]), offsets, extents)
            done = writer.scf.InParallelOp()
            with writer.ir.InsertionPoint(done.block):
                part.insert(writer, written, loop.inner_iter_args[0])
        return loop.results[0]

    def _rows(self, out: Value, start: Sequence[Index], extents: Sequence[Index]) -> Value:
        """Write the loop over the outer dimension; ``start`` is where ``out`` begins in the whole."""
        writer = self._writer
        inner = self._along if len(self._scan.sizes) == 2 else self._across

        def row(iv: Index, now: list[Value]) -> list[Value]:
            return [inner(now[0], iv, [writer.add(start[0], iv), *start[1:]], extents)]

        return writer.loop(0, extents[0], 1, [out], row)[0]

    # --- vectors along what is scanned ---

    def _along(self, out: Value, row: Index, start: Sequence[Index], extents: Sequence[Index]) -> Value:
        del extents
        writer, scan = self._writer, self._scan

        def step(iv: Index, now: list[Value], *, masked: bool = False) -> list[Value]:
            mask = self._mask(writer.sub(scan.length, iv)) if masked else None
            value = self._scanned(self._read([start[0], iv], mask))
            before = self._to(now[1], scan.computed)
            total = combine(writer, scan.combiner, value, writer.splat(before, scan.width))
            last = writer.vector.extract(value, [], [scan.width - 1]) if scan.width > 1 else value
            after = combine(writer, scan.combiner, now[1], self._to(last, scan.carried))
            return [writer.write(self._to(total, scan.element), now[0], [row, iv], mask), after]

        whole = scan.length - scan.length % scan.width
        first = [out, neutral(writer, scan.combiner, scan.carried)]
        now = writer.loop(0, whole, scan.width, first, step)
        return step(whole, now, masked=True)[0] if whole < scan.length else now[0]

    def _scanned(self, value: Value) -> Value:
        """Scan a vector in its register: each round adds the lanes twice as far before."""
        writer, scan = self._writer, self._scan
        if scan.width == 1:
            return value
        none = writer.splat(neutral(writer, scan.combiner, scan.computed), scan.width)
        reach = 1
        while reach < scan.width:
            lanes = [lane - reach if lane >= reach else scan.width for lane in range(scan.width)]
            value = combine(writer, scan.combiner, value, writer.vector.shuffle(value, none, lanes))
            reach *= 2
        return value

    # --- vectors across it ---

    def _across(self, out: Value, row: Index, start: Sequence[Index], extents: Sequence[Index]) -> Value:
        writer, scan = self._writer, self._scan
        extent = extents[2]

        def column(iv: Index, now: list[Value], *, masked: bool = False) -> list[Value]:
            mask = self._mask(writer.sub(extent, iv)) if masked else None

            def step(place: Index, carried: list[Value]) -> list[Value]:
                value = self._read([start[0], place, writer.add(start[2], iv)], mask)
                total = combine(writer, scan.combiner, carried[1], self._to(value, scan.carried))
                at = [row, place, iv]
                return [writer.write(self._to(total, scan.element), carried[0], at, mask), total]

            none = writer.splat(neutral(writer, scan.combiner, scan.carried), scan.width)
            return writer.loop(0, scan.length, 1, [now[0], none], step)[:1]

        whole = writer.whole(extent, scan.width)
        now = writer.loop(0, whole, scan.width, [out], column)
        return writer.loop(
            whole, extent, scan.width, now, lambda iv, inner: column(iv, inner, masked=scan.width > 1)
        )[0]

    # --- one vector ---

    def _read(self, at: Sequence[Index], mask: Value | None) -> Value:
        scan = self._scan
        padding = neutral(self._writer, scan.combiner, scan.element)
        value = self._writer.read(self._given, at, scan.width, mask, padding)
        return self._to(value, scan.computed)

    def _mask(self, left: Index) -> Value | None:
        if self._scan.width == 1:
            return None
        return self._writer.vector.create_mask(self._boolean, [self._writer.index(left)])

    def _to(self, value: Value, element: Any) -> Value:
        return converted(self._writer, value, element) if is_float(element) else value
