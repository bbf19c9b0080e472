"""Products of matrices are right whatever their shape, order, type, threads and blocks, and are what they should be."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchsched.bindings import available
from torchsched.elements import Element
from torchsched.targets import Feature, Target, detect

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

Check = Callable[..., Any]

ORDERS = [("mk", "kn"), ("km", "kn"), ("mk", "nk"), ("km", "nk")]
BLOCKED = {"m": 45, "n": 70, "k": 83}
"""No tile divides it, and the sum has several blocks of 32."""


@pytest.mark.parametrize("element", [Element.F32, Element.BF16])
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_operands_may_be_transposed(
    check: Check, target: Target, order: tuple[str, str], element: Element
) -> None:
    check(target, {"kc": 32}, sizes=BLOCKED, lhs=order[0], rhs=order[1], element=element)


@pytest.mark.parametrize("element", [Element.F64, Element.F16, Element.I32, Element.I8])
def test_other_elements_are_served(check: Check, target: Target, element: Element) -> None:
    made = check(target, sizes=BLOCKED, lhs="km", rhs="nk", element=element)
    assert "linalg.generic" not in made.tiled


@pytest.mark.parametrize("initial", ["constant", "tensor"])
@pytest.mark.parametrize("kc", [0, 32])
def test_sums_begin_with_what_the_result_held(check: Check, target: Target, initial: str, kc: int) -> None:
    check(target, {"kc": kc}, sizes=BLOCKED, initial=initial)


@pytest.mark.parametrize(
    "tail", ["bias", "bias of rows", "residual", "relu", "tanh", "narrower", "upper triangle"]
)
@pytest.mark.parametrize(
    ("sizes", "kc"),
    [(BLOCKED, 32), ({"m": 24, "n": 64, "k": 64}, 0), ({"m": 1, "n": 70, "k": 40}, 0)],
    ids=["with edges", "without edges", "thin"],
)
def test_what_is_done_to_the_result_is_done_with_it(
    check: Check, tail: str, kc: int, sizes: dict[str, int]
) -> None:
    made = check(detect(threads=2), {"kc": kc}, sizes=sizes, tail=tail, initial="tensor")
    assert "linalg.generic" not in made.tiled


@pytest.mark.parametrize(
    "product",
    [
        {"lhs": "bmk", "rhs": "bkn", "out": "bmn"},
        {"lhs": "bmk", "rhs": "bnk", "out": "bmn"},
        {"lhs": "bkm", "rhs": "kn", "out": "bmn"},
        {"lhs": "cbmk", "rhs": "bckn", "out": "bcmn"},
        {"lhs": "mbk", "rhs": "bkn", "out": "bmn"},
        {"lhs": "bmk", "rhs": "bkn", "out": "mbn"},
        {"lhs": "mk", "rhs": "kn", "out": "nm"},
        {"lhs": "bmk", "rhs": "bkn", "out": "bnm", "tail": "residual"},
    ],
    ids=lambda product: "-".join(product.values()),
)
@pytest.mark.parametrize("work", [1, 60], ids=["by the batch", "one by one"])
def test_batches_may_lie_in_any_order(check: Check, product: dict[str, str], work: int) -> None:
    # small products are shared out by the batch, large ones each among all threads
    axes = sorted({*product["lhs"], *product["rhs"]}, key="bcmnk".index)
    sizes = {"b": 3, "c": 2, "m": 49 + 2 * work, "n": 70 + 3 * work, "k": 51 + 3 * work}
    made = check(detect(threads=2), sizes={axis: sizes[axis] for axis in axes}, **product)
    assert "linalg.generic" not in made.tiled


def test_a_stack_of_large_products_is_no_single_vector(check: Check) -> None:
    made = check(
        detect(threads=2), sizes={"b": 4, "m": 256, "n": 256, "k": 256}, lhs="bmk", rhs="bkn", out="bmn"
    )
    lanes = [int(each) for each in re.findall(r"vector<(\d+)x", made.tiled)]
    assert max(lanes) <= 16
    assert made.compiled.compile_s < 5


THIN = [
    {"m": 1, "n": 203, "k": 77},
    {"m": 203, "n": 1, "k": 77},
    {"m": 3, "n": 203, "k": 77},
    {"m": 203, "n": 6, "k": 77},
    {"m": 7, "n": 203, "k": 77},
    {"m": 1, "n": 1, "k": 203},
    {"m": 203, "n": 77, "k": 1},
    {"m": 1, "n": 1, "k": 1},
    {"m": 5, "n": 4, "k": 3},
    {"m": 1, "n": 9000, "k": 40},
]


@pytest.mark.parametrize(
    ("order", "element"), list(zip(ORDERS, [Element.F32, Element.BF16] * 2, strict=True)), ids=str
)
@pytest.mark.parametrize("sizes", THIN, ids=str)
def test_thin_products_are_right(
    check: Check, sizes: dict[str, int], order: tuple[str, str], element: Element
) -> None:
    made = check(detect(threads=2), sizes=sizes, lhs=order[0], rhs=order[1], element=element, tail="bias")
    assert "linalg.generic" not in made.tiled


def test_a_large_matrix_times_a_vector_is_shared_out_and_not_packed(check: Check) -> None:
    target = detect(threads=2)
    made = check(target, sizes={"m": 1000, "n": 1, "k": 300}, lhs="mk", rhs="kn")
    assert made.tiled.count("scf.forall") == (1 if target.parallel else 0) * 2  # it begins and ends
    assert made.compiled.workspaces == ()


@pytest.mark.parametrize(
    "values",
    [
        {"mr": 1, "nr": 64},
        {"mr": 5, "nr": 48, "kc": 32, "mc": 10, "nc": 96},
        {"mr": 12, "nr": 16, "kc": 16, "mc": 12, "nc": 16, "ku": 4},
        {"mr": 40, "nr": 8, "ku": 3},
        {"nc": 32, "mc": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("element", [Element.F32, Element.BF16])
def test_any_block_sizes_give_the_same(check: Check, values: dict[str, int], element: Element) -> None:
    check(detect(threads=2), values, sizes=BLOCKED, element=element, tail="bias")


SIZE = st.one_of(st.integers(1, 5), st.integers(1, 80))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.fixed_dictionaries({"b": st.integers(1, 3), "m": SIZE, "n": SIZE, "k": SIZE}),
    lhs=st.permutations("bmk"),
    rhs=st.permutations("bkn"),
    out=st.sampled_from(["bmn", "bnm", "mbn"]),
    element=st.sampled_from([Element.F32, Element.BF16, Element.F64, Element.I8]),
    initial=st.sampled_from(["zero", "constant", "tensor"]),
    kc=st.sampled_from([0, 32]),
    threads=st.integers(1, 2),
)
def test_small_products_of_any_form_are_right(
    check: Check, lhs: list[str], rhs: list[str], threads: int, kc: int, **product: Any
) -> None:
    check(detect(threads=threads), {"kc": kc}, lhs="".join(lhs), rhs="".join(rhs), **product)


def test_a_product_that_cannot_be_written_is_left_alone(check: Check) -> None:
    made = check(detect(threads=1), sizes={"b": 3, "m": 9, "n": 8, "k": 7}, lhs="bmk", rhs="knb", out="bmn")
    assert "linalg.generic" in made.tiled


@pytest.mark.skipif(Feature.AVX512 not in detect().features, reason="needs AVX-512")
@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[3]], ids="-".join)
def test_the_innermost_loop_is_multiply_adds_of_whole_registers(check: Check, order: tuple[str, str]) -> None:
    made = check(detect(threads=1), sizes={"m": 96, "n": 64, "k": 2000}, lhs=order[0], rhs=order[1])
    lines = made.compiled.assembly().splitlines()
    adds = [number for number, line in enumerate(lines) if "vfmadd" in line and "zmm" in line]
    assert adds
    assert len(adds) % 24 == 0  # a tile's sums, in each of the loops that LLVM made of one
    # between neighbouring ones, unless a loop ends there
    between = [lines[one + 1 : other] for one, other in pairwise(adds) if other - one < 9]
    inside = [line for gap in between for line in gap if "zmm" in line]
    reads = re.compile(r"(vbroadcastss|vmov[au]p[sd])\s+-?(0x[0-9a-f]+)?\(.*\),%zmm")
    # numbers are read that they multiply, from packed operands: two vectors and 12 numbers a step, and nothing else
    assert all(reads.search(line) and "rsp" not in line for line in inside), inside
    assert len(between) > 0.9 * len(adds)
    assert len(inside) <= 14 / 24 * len(adds)


@pytest.mark.skipif(Feature.AVX512_BF16 not in detect().features, reason="needs AVX512_BF16")
def test_bf16_is_multiplied_in_pairs(check: Check) -> None:
    made = check(detect(threads=1), sizes={"m": 96, "n": 64, "k": 64}, element=Element.BF16)
    found = made.compiled.assembly().count("vdpbf16ps")
    assert found
    assert found % 24 == 0
