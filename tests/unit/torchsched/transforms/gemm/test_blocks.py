"""Block sizes follow from shape, numbers and processor by arithmetic alone, and what is asked for is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsched.transforms.gemm.blocks import Blocks, Machine, Numbers, Shape, Sizes, choose_blocks

F32 = Numbers(lanes=16, bytes=4)
BF16 = Numbers(lanes=16, bytes=2, pair=2)
ANY = Sizes()
ZEN = Machine(registers=32, threads=1, l2=1 << 20, l3=32 << 20)


def chosen(m: int, n: int, k: int, *, batches: int = 1, threads: int = 1, wanted: Sizes = ANY) -> Blocks:
    machine = Machine(ZEN.registers, threads, ZEN.l2, ZEN.l3)
    return choose_blocks(Shape(batches, m, n, k), F32, machine, wanted)


def test_a_tile_fills_three_quarters_of_the_registers() -> None:
    assert (chosen(4096, 4096, 1024).mr, chosen(4096, 4096, 1024).nr) == (6, 64)
    few = choose_blocks(Shape(1, 4096, 4096, 1024), Numbers(lanes=8, bytes=4), Machine(registers=16))
    assert (few.mr, few.nr) == (6, 16)


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [
        (1037, 1483, (8, 48)),
        (821, 592, (12, 32)),
        (256, 64, (8, 32)),
        (13, 4096, (7, 48)),
        (100, 100, (10, 16)),
        (6, 4096, (6, 64)),
        (4096, 16, (12, 16)),
        (4096, 17, (12, 16)),
    ],
)
def test_a_tile_leaves_few_of_its_rows_and_columns_empty(m: int, n: int, tile: tuple[int, int]) -> None:
    blocks = chosen(m, n, 512)
    assert (blocks.mr, blocks.nr) == tile


@pytest.mark.parametrize(("k", "depth"), [(5, 16), (1024, 1024), (1483, 1488), (2048, 1024), (4096, 1376)])
def test_steps_are_cut_into_equal_blocks_of_about_a_thousand(k: int, depth: int) -> None:
    assert chosen(512, 512, k).kc == depth


def test_pairs_of_narrow_numbers_make_blocks_twice_as_deep() -> None:
    assert choose_blocks(Shape(1, 512, 512, 4096), BF16, ZEN).kc == 2048


def test_blocks_of_both_operands_fit_their_caches() -> None:
    blocks = chosen(8192, 8192, 8192)
    assert blocks.mc * blocks.kc * 4 <= ZEN.l2 // 2
    assert blocks.nc * blocks.kc * 4 <= ZEN.l3 // 2
    assert blocks.nr * blocks.kc * 4 <= ZEN.l2 // 4 * 1.5
    # and are equal: 6 of 1376 steps, and 3 of 2752 columns, 15 MB each
    assert (blocks.kc, blocks.nc) == (1376, 2752)


def test_threads_share_rows_and_where_those_are_few_columns() -> None:
    assert (
        chosen(1024, 1024, 512, threads=2).over_rows,
        chosen(1024, 1024, 512, threads=2).over_columns,
    ) == (2, 1)
    flat = chosen(12, 8192, 512, threads=8)
    assert flat.over_columns >= 4
    assert flat.inside == 8
    square = chosen(96, 256, 1024, threads=16)
    assert square.over_rows * square.over_columns == 16


def test_rows_are_chosen_so_that_no_thread_waits_long() -> None:
    # 8 tiles of 12 rows for 3 threads: one would do three and two of them wait; 9 of 11 are shared evenly
    blocks = chosen(96, 512, 512, threads=3)
    tiles = -(-96 // blocks.mr)
    assert tiles % 3 == 0


def test_batches_are_shared_where_that_leaves_no_thread_idle() -> None:
    assert chosen(64, 64, 64, batches=32, threads=4).over_batches == 4
    large = chosen(512, 512, 512, batches=3, threads=2)
    assert (large.over_batches, large.inside) == (1, 2)
    small = chosen(96, 96, 96, batches=3, threads=2)
    assert (small.over_batches, small.inside) == (2, 1)


def test_little_work_is_done_by_one_thread() -> None:
    small = chosen(64, 64, 64, threads=8)
    assert (small.over_batches, small.inside) == (1, 1)


def test_sizes_that_are_asked_for_are_taken() -> None:
    blocks = chosen(1024, 1024, 1024, wanted=Sizes(mr=6, nr=64, kc=256, mc=96, nc=512, unroll=4))
    assert (blocks.mr, blocks.nr, blocks.kc, blocks.mc, blocks.nc, blocks.unroll) == (6, 64, 256, 96, 512, 4)


def test_sizes_are_rounded_up_to_what_they_are_made_of() -> None:
    blocks = chosen(1024, 1024, 1024, wanted=Sizes(mr=5, nr=20, kc=100, mc=7, nc=40, unroll=3))
    assert (blocks.nr, blocks.mc, blocks.nc) == (32, 10, 64)
    assert blocks.kc == 112
    assert blocks.unroll == 2


SIZE = st.integers(1, 20_000)


@given(
    batches=st.integers(1, 40),
    m=SIZE,
    n=SIZE,
    k=SIZE,
    threads=st.integers(1, 128),
    numbers=st.sampled_from([F32, BF16, Numbers(lanes=8, bytes=8), Numbers(lanes=4, bytes=4)]),
    registers=st.sampled_from([16, 32]),
    l2=st.sampled_from([0, 256 << 10, 2 << 20]),
    unroll=st.integers(0, 40),
)
def test_every_shape_gets_blocks_that_can_be_written(
    batches: int, m: int, n: int, k: int, threads: int, numbers: Numbers, registers: int, l2: int, unroll: int
) -> None:
    wanted = Sizes(unroll=unroll)
    blocks = choose_blocks(Shape(batches, m, n, k), numbers, Machine(registers, threads, l2), wanted)
    vectors = blocks.nr // numbers.lanes
    assert blocks.nr % numbers.lanes == 0
    assert blocks.mr * vectors + vectors + 1 <= registers
    assert blocks.kc % (numbers.lanes * numbers.pair) == 0
    assert numbers.lanes % blocks.unroll == 0
    assert blocks.mc % blocks.mr == 0
    assert blocks.nc % blocks.nr == 0
    assert min(blocks.mr, blocks.kc, blocks.mc, blocks.nc) > 0
    assert 1 <= blocks.over_batches * blocks.inside <= threads
    assert blocks.over_batches <= batches
    assert blocks.over_rows <= -(-m // blocks.mr)
    assert blocks.over_columns <= -(-n // blocks.nr)
