"""Operations are read into nests, or left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchsched.bindings import available, bindings
from torchsched.transforms.vectors.nests import Combiner, Start
from torchsched.transforms.vectors.numbers import Numbers, numbers_of
from torchsched.transforms.vectors.reading import Program, read_program

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

ALL = "affine_map<(i, j) -> (i, j)>"
ROW = "affine_map<(i, j) -> (i)>"
SAME = "affine_map<(i) -> (i)>"
Read = Callable[[str, str], tuple[Program, Numbers]]


def generic(maps: str, kinds: str, inputs: str, outputs: str, result: str, body: str) -> str:
    return (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {inputs} outs({outputs}) {{\n"
        f"{body}\n}} -> {result}"
    )


@pytest.fixture
def read() -> Read:
    """Read the operations of a function: ``read(arguments, text)``."""
    ir = bindings("ir")
    context = ir.Context()
    kept = []

    def reading(arguments: str, text: str) -> tuple[Program, Numbers]:
        with context:
            module = ir.Module.parse(f"func.func @main({arguments}) {{\n{text}\nreturn\n}}")
        kept.append(module)
        function = module.body.operations[0]
        numbers = numbers_of(function)
        return read_program(function.regions[0].blocks[0], numbers), numbers

    return reading


def reduction(body: str, element: str = "f32", *, filled: bool = True) -> str:
    """Write a reduction of ``%x``'s rows, from zero or from ``%y``."""
    zero = f"%z = arith.constant {'0.0' if element[0] in 'fb' else '0'} : {element}"
    fill = f"%s = linalg.fill ins(%z : {element}) outs(%y : tensor<4x{element}>) -> tensor<4x{element}>"
    text = generic(
        f"{ALL}, {ROW}",
        '"parallel", "reduction"',
        f"ins(%x : tensor<4x8x{element}>)",
        f"{'%s' if filled else '%y'} : tensor<4x{element}>",
        f"tensor<4x{element}>",
        f"^bb0(%in: {element}, %out: {element}):\n{body}",
    )
    return f"{zero}\n{fill}\n%r = {text}"


@pytest.mark.parametrize(
    ("operation", "element", "combiner"),
    [
        ("arith.addf %in, %out", "f32", Combiner.ADD),
        ("arith.addf %out, %in", "f32", Combiner.ADD),
        ("arith.mulf %in, %out", "f32", Combiner.MUL),
        ("arith.maximumf %in, %out", "bf16", Combiner.MAX_FLOAT),
        ("arith.minsi %in, %out", "i64", Combiner.MIN_SIGNED),
        ("arith.andi %in, %out", "i1", Combiner.AND),
        ("arith.subf %in, %out", "f32", None),
    ],
)
def test_how_a_result_accumulates_is_read(
    read: Read, operation: str, element: str, combiner: Combiner | None
) -> None:
    text = reduction(f"%a = {operation} : {element}\nlinalg.yield %a : {element}", element)
    program, _ = read(f"%x: tensor<4x8x{element}>, %y: tensor<4x{element}>", text)
    (nest,) = program.nests.values()
    assert nest.body.combiners == (combiner,)
    assert nest.starts == (Start.VALUE,)
    assert [(axis.size, axis.reduced) for axis in nest.axes] == [(4, False), (8, True)]


def test_a_result_that_goes_on_from_a_tensor_says_so(read: Read) -> None:
    text = reduction("%a = arith.addf %in, %out : f32\nlinalg.yield %a : f32", filled=False)
    program, _ = read("%x: tensor<4x8xf32>, %y: tensor<4xf32>", text)
    (nest,) = program.nests.values()
    assert nest.starts == (Start.TENSOR,)
    assert nest.initial[0] is not None
    assert nest.initial[0].strides == (1, 0)


@pytest.mark.parametrize(
    ("predicate", "place"),
    [
        ("ogt", Combiner.PLACE),
        ("oge", None),
        ("olt", None),
    ],  # of equal ones the first, or it is no such place
)
def test_an_extreme_and_its_place_are_one_reduction(
    read: Read, predicate: str, place: Combiner | None
) -> None:
    text = generic(
        f"{ALL}, {ROW}, {ROW}",
        '"parallel", "reduction"',
        "ins(%x : tensor<4x8xf32>)",
        "%s, %t : tensor<4xf32>, tensor<4xi64>",
        "(tensor<4xf32>, tensor<4xi64>)",
        f"""^bb0(%in: f32, %best: f32, %where: i64):
        %j = linalg.index 1 : index
        %k = arith.index_cast %j : index to i64
        %m = arith.maximumf %in, %best : f32
        %c = arith.cmpf {predicate}, %in, %best : f32
        %w = arith.select %c, %k, %where : i64
        linalg.yield %m, %w : f32, i64""",
    )
    fills = """%z = arith.constant 0xFF800000 : f32
    %o = arith.constant 0 : i64
    %s = linalg.fill ins(%z : f32) outs(%y : tensor<4xf32>) -> tensor<4xf32>
    %t = linalg.fill ins(%o : i64) outs(%p : tensor<4xi64>) -> tensor<4xi64>"""
    arguments = "%x: tensor<4x8xf32>, %y: tensor<4xf32>, %p: tensor<4xi64>"
    program, _ = read(arguments, f"{fills}\n%r:2 = {text}")
    (nest,) = program.nests.values()
    assert nest.body.combiners == (Combiner.MAX_FLOAT if place else None, place)


def copied(kind: str, source_map: str = SAME) -> str:
    return generic(
        f"{source_map}, {SAME}",
        '"parallel"',
        "ins(%x : tensor<4xf32>)" if "floordiv" in source_map else f"ins(%x : {kind})",
        f"%y : {kind}",
        kind,
        "^bb0(%in: f32, %out: f32):\nlinalg.yield %in : f32",
    )


def test_an_access_that_is_not_linear_leaves_the_operation_alone(read: Read) -> None:
    text = copied("tensor<8xf32>", "affine_map<(i) -> (i floordiv 2)>")
    program, _ = read("%x: tensor<4xf32>, %y: tensor<8xf32>", f"%r = {text}")
    assert not program.nests


@pytest.mark.parametrize(("size", "read_as_nest"), [("?", False), ("0", False), ("8", True)])
def test_unknown_and_empty_sizes_leave_the_operation_alone(read: Read, size: str, read_as_nest: bool) -> None:
    kind = f"tensor<{size}xf32>"
    program, _ = read(f"%x: {kind}, %y: {kind}", f"%r = {copied(kind)}")
    assert bool(program.nests) is read_as_nest


def test_a_read_at_a_place_linear_in_the_counters_is_like_an_operand(read: Read) -> None:
    body = """^bb0(%out: f32):
    %i = linalg.index 0 : index
    %c = arith.constant 7 : index
    %p = arith.subi %c, %i : index
    %e = tensor.extract %x[%p] : tensor<8xf32>
    linalg.yield %e : f32"""
    text = generic(SAME, '"parallel"', "", "%y : tensor<8xf32>", "tensor<8xf32>", body)
    program, _ = read("%x: tensor<8xf32>, %y: tensor<8xf32>", f"%r = {text}")
    (nest,) = program.nests.values()
    assert [(pick.strides, pick.offset) for pick in nest.picks] == [((-1,), 7)]
    assert not nest.indices
    assert not nest.gathers


SQUARES = """%w = arith.extf %in : f32 to f64
    %v = arith.mulf %w, %w : f64
    %n = arith.truncf %v : f64 to f32
    %a = arith.addf %n, %out : f32
    linalg.yield %a : f32"""
WHOLE = SQUARES.replace(
    "%v = arith.mulf %w, %w : f64", "%k = arith.fptosi %w : f64 to i64\n%v = arith.sitofp %k : i64 to f64"
)


@pytest.mark.parametrize(
    ("body", "more", "narrow"),
    [(SQUARES, "", True), (SQUARES, ", %d: tensor<2xf64>", False), (WHOLE, "", False)],
    ids=["unseen", "given", "whole numbers"],
)
def test_doubles_that_nobody_sees_are_computed_in_single_precision(
    read: Read, body: str, more: str, narrow: bool
) -> None:
    _, numbers = read(f"%x: tensor<4x8xf32>, %y: tensor<4xf32>{more}", reduction(body))
    assert numbers.narrow_doubles is narrow
