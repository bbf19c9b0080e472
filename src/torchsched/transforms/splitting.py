"""Splits reductions: among threads where there are too few results for them, and into parts where a sum is long.

Works on structured operations; what it makes of one are two of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.targets import Target
from torchsched.transforms.vectors.bodies import read_body
from torchsched.transforms.vectors.combining import combine, neutral
from torchsched.transforms.vectors.nests import Body, Combiner
from torchsched.transforms.vectors.numbers import Numbers
from torchsched.transforms.vectors.writing import Writer

__all__ = ["cut_long_sums", "split_factor", "split_reductions"]

Value = Any


def split_reductions(module: Module, *, target: Target, grain: int = 32768) -> None:
    """Give each large reduction with fewer results than there are threads a dimension to be divided among them.

    Args:
        module: On tensors.
        target: Says how many threads.
        grain: Elements below which one thread does all.
    """
    if not target.parallel:
        return
    with module.context, bindings("ir").Location.unknown(module.context):
        for operation in _generics(module):
            _split(operation, target.threads, grain)


def cut_long_sums(module: Module, *, target: Target, longest: int = 65536) -> None:
    """Let no sum or product of floats take more than ``longest`` steps one after the other, where sizes allow that.

    Added up one by one, 3.7 million squares in f32 were off by more than rounding in a better order allows: the
    sum is then so large that each square loses most of its digits. Parts are summed up first, and then the parts.

    Args:
        module: On tensors.
        target: Of no account here.
        longest: Steps that are allowed.
    """
    del target
    with module.context, bindings("ir").Location.unknown(module.context):
        for operation in _generics(module):
            _cut_sum(operation, longest)


def _generics(module: Module) -> list[Operation]:
    return [
        view.operation
        for function in module.body.operations
        for region in function.operation.regions
        for block in region.blocks
        for view in block.operations
        if view.operation.name == "linalg.generic"
    ]


def _cut_sum(operation: Operation, longest: int) -> None:
    """Cut the outermost loop of a long sum, and go on with what is left of it."""
    kinds = ["reduction" in str(kind) for kind in operation.attributes["iterator_types"]]
    sizes = _sizes(operation, len(kinds))
    if sizes is None:
        return
    length = math.prod(size for size, reduced in zip(sizes, kinds, strict=True) if reduced)
    body = read_body(operation, Numbers())
    if length <= longest or body is None or not _reorderable(operation, body):
        return
    if not any(each is not None and each.rounds for each in body.combiners):
        return
    for loop, (size, reduced) in enumerate(zip(sizes, kinds, strict=True)):
        factor = _parts(size, length, longest) if reduced else None
        if factor is not None:
            _cut_sum(_rewrite(operation, body, loop, factor), longest)
            return


def _parts(size: int, length: int, longest: int) -> int | None:
    """Give the fewest parts of a loop that leave no more than ``longest`` steps, or as many as there may be.

    ``None`` where that would leave all steps to the sum of the parts.
    """
    divisors = [each for each in range(2, min(size, longest) + 1) if size % each == 0 and each < length]
    return next((each for each in divisors if length // each <= longest), divisors[-1] if divisors else None)


def split_factor(size: int, threads: int) -> int | None:
    """Give the number of parts of a loop: a divisor of its size, few times the threads; ``None`` for none."""
    for factor in range(threads, 8 * threads + 1):
        if size % factor == 0 and size > factor and (factor % threads == 0 or factor >= 4 * threads):
            return factor
    return None


def _split(operation: Operation, threads: int, grain: int) -> None:
    kinds = ["reduction" in str(kind) for kind in operation.attributes["iterator_types"]]
    sizes = _sizes(operation, len(kinds))
    if not any(kinds) or sizes is None or 0 in sizes:
        return
    kept = math.prod(size for size, reduced in zip(sizes, kinds, strict=True) if not reduced)
    body = read_body(operation, Numbers())
    if kept >= threads or math.prod(sizes) < 2 * grain or body is None or not _reorderable(operation, body):
        return
    for loop, reduced in enumerate(kinds):
        factor = split_factor(sizes[loop], threads) if reduced else None
        if factor is not None:
            _rewrite(operation, body, loop, factor)
            return


def _reorderable(operation: Operation, body: Body) -> bool:
    inner = [each.operation.name for each in operation.regions[0].blocks[0].operations]
    known = all(each is not None and each is not Combiner.PLACE for each in body.combiners)
    return (
        known and "linalg.index" not in inner and "cf.assert" not in inner and "tensor.extract" not in inner
    )


def _positions(map_: Any) -> list[int] | None:
    """Give the loop that each dimension is walked along, if each is walked along by one."""
    ir = bindings("ir")
    found = []
    for expression in map_.results:
        if isinstance(expression, ir.AffineConstantExpr):
            found.append(-1)
        elif isinstance(expression, ir.AffineDimExpr):
            found.append(expression.position)
        else:
            return None
    return found


def _sizes(operation: Operation, rank: int) -> list[int] | None:
    """Give each loop's size, if every operand is walked along its dimensions and nothing else."""
    sizes: list[int] = [-1] * rank
    for value, attribute in zip(operation.operands, operation.attributes["indexing_maps"], strict=True):
        places = _positions(attribute.value)
        if places is None or not value.type.has_static_shape:
            return None
        for place, size in zip(places, value.type.shape, strict=True):
            if place >= 0:
                sizes[place] = size
    return sizes if -1 not in sizes else None


def _rewrite(operation: Operation, body: Body, loop: int, factor: int) -> Operation:
    """Write the reduction as one over parts, with a loop over the parts before the one that is cut, and their sum.

    Returns:
        What reduces each part.
    """
    ir = bindings("ir")
    inputs = len(operation.operands) - len(operation.results)
    maps = [_positions(each.value) for each in operation.attributes["indexing_maps"]]
    with ir.InsertionPoint(operation), operation.location:
        writer = Writer()
        cut, cut_maps = [], []
        for value, places in zip(list(operation.operands)[:inputs], maps[:inputs], strict=True):
            assert places is not None  # by _sizes
            cut.append(_cut(writer, value, places, loop, factor))
            moved = [[place, place + 1] if place == loop else [place + (place > loop)] for place in places]
            cut_maps.append([each for pair in moved for each in pair])
        begun, begun_maps = [], []
        for result, combiner, places in zip(operation.results, body.combiners, maps[inputs:], strict=True):
            assert places is not None and combiner is not None  # noqa: PT018 - by _sizes and _reorderable
            shape = [factor, *result.type.shape]
            empty = writer.empty(shape, result.type.element_type)
            begun.append(_filled(empty, neutral(writer, combiner, result.type.element_type)))
            begun_maps.append([loop, *(place + (place > loop) for place in places)])
        kinds = [str(each) for each in operation.attributes["iterator_types"]]
        parts = _generic(
            cut,
            begun,
            [*cut_maps, *begun_maps],
            [*kinds[:loop], _PARALLEL, *kinds[loop:]],
            operation.regions[0],
        )
        for number, (part, combiner) in enumerate(zip(parts, body.combiners, strict=True)):
            assert combiner is not None  # by _reorderable
            start = operation.operands[inputs + number]
            whole = _together(writer, part, start, combiner)
            operation.results[number].replace_all_uses_with(whole)
    operation.erase()
    return parts[0].owner


_PARALLEL, _REDUCTION = "#linalg.iterator_type<parallel>", "#linalg.iterator_type<reduction>"


def _cut(writer: Writer, value: Value, places: Sequence[int], loop: int, factor: int) -> Value:
    """Give the tensor with the dimension that ``loop`` walks along cut into ``factor`` parts."""
    if loop not in places:
        return value
    at = list(places).index(loop)
    shape = list(value.type.shape)
    finer = [*shape[:at], factor, shape[at] // factor, *shape[at + 1 :]]
    groups = [[k] if k < at else [k, k + 1] if k == at else [k + 1] for k in range(len(shape))]
    return writer.tensor.expand_shape(
        writer.tensor_type(finer, value.type.element_type), value, groups, [], finer
    )


def _filled(empty: Value, value: Value) -> Value:
    linalg = bindings("dialects.linalg")
    return linalg.fill(value, outs=[empty])


def _generic(
    inputs: list[Value], outputs: list[Value], maps: list[list[int]], kinds: list[str], region: Any
) -> list[Value]:
    """Write an operation with the body of another one."""
    ir = bindings("ir")
    rank = len(kinds)
    made = ir.Operation.create(
        "linalg.generic",
        results=[each.type for each in outputs],
        operands=[*inputs, *outputs],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([_map(places, rank) for places in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(kind) for kind in kinds]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)]),
        },
        regions=1,
    )
    region.blocks[0].append_to(made.regions[0])
    return list(made.results)


def _map(places: Sequence[int], rank: int) -> Any:
    ir = bindings("ir")
    results = [
        ir.AffineDimExpr.get(place) if place >= 0 else ir.AffineConstantExpr.get(0) for place in places
    ]
    return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, results))


def _together(writer: Writer, parts: Value, start: Value, combiner: Combiner) -> Value:
    """Write the reduction over the first dimension of ``parts``, from ``start`` on."""
    ir = bindings("ir")
    rank = start.type.rank
    made = ir.Operation.create(
        "linalg.generic",
        results=[start.type],
        operands=[parts, start],
        attributes={
            "indexing_maps": ir.ArrayAttr.get(
                [_map(range(rank + 1), rank + 1), _map(range(1, rank + 1), rank + 1)]
            ),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(_REDUCTION), *[ir.Attribute.parse(_PARALLEL)] * rank]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    element = start.type.element_type
    block = made.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        value = combine(writer, combiner, *block.arguments)
        ir.Operation.create("linalg.yield", operands=[value])
    return made.results[0]
