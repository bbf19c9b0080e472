"""Accesses are followed through reshapes, slices and padding, and only where they stay linear."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchsched.bindings import available, bindings
from torchsched.transforms.vectors.accesses import Bound
from torchsched.transforms.vectors.views import Seen, look_through, root_of

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

SLICED = "%v = tensor.extract_slice %x[1, 2] [4, 6] [2, 3] : tensor<9x20xf32> to tensor<4x6xf32>"
PADDED = """%c = arith.constant 0.0 : f32
%v = tensor.pad %x low[1, 2] high[1, 0] {
^bb0(%i: index, %j: index):
  tensor.yield %c : f32
} : tensor<9x20xf32> to tensor<11x22xf32>"""
Follow = Callable[..., Seen | None]


@pytest.fixture
def seen() -> Follow:
    """Follow an access to ``%v``, which the text makes of ``%x``: ``seen(text, strides, sizes, offset)``."""
    ir = bindings("ir")
    context = ir.Context()
    modules = []

    def follow(text: str, strides: list[int], sizes: list[int], offset: int = 0) -> Seen | None:
        kind = text.rsplit(" ", 1)[-1]
        use = f"%use = tensor.cast %v : {kind} to tensor<*xf32>"
        with context:
            module = ir.Module.parse(f"func.func @main(%x: tensor<9x20xf32>) {{\n{text}\n{use}\nreturn\n}}")
        modules.append(module)
        block = module.body.operations[0].regions[0].blocks[0]
        value = list(block.operations)[-2].operands[0]
        assert root_of(value) == block.arguments[0]
        return look_through(value, strides, offset, sizes)

    return follow


def test_a_reshape_changes_nothing(seen: Follow) -> None:
    text = "%v = tensor.collapse_shape %x [[0, 1]] : tensor<9x20xf32> into tensor<180xf32>"
    found = seen(text, [1], [180])
    assert found is not None
    assert (found.strides, found.offset) == ((1,), 0)


@pytest.mark.parametrize(
    ("strides", "sizes", "offset", "wanted"),
    [
        ([6, 1], [4, 6], 0, ((40, 3), 22)),
        ([6, 1, 1], [4, 4, 3], 0, ((40, 3, 3), 22)),  # a window
        ([1], [6], 12, ((3,), 22 + 80)),  # the third row
        ([6, -1], [4, 6], 5, ((40, -3), 22 + 15)),  # rows backwards
        ([1], [24], 0, None),  # over the end of a row
        ([6, 1], [4, 7], 0, None),
    ],
)
def test_a_slice_moves_by_the_steps_of_its_source(
    seen: Follow,
    strides: list[int],
    sizes: list[int],
    offset: int,
    wanted: tuple[tuple[int, ...], int] | None,
) -> None:
    found = seen(SLICED, strides, sizes, offset)
    assert (found and (found.strides, found.offset)) == wanted


def test_padding_gives_bounds_where_there_is_some(seen: Follow) -> None:
    found = seen(PADDED, [22, 1], [11, 22])
    assert found is not None
    assert (found.strides, found.offset) == ((20, 1), -22)
    assert found.bounds == (Bound((1, 0), -1, 9), Bound((0, 1), -2, 20))
    assert "0.0" in str(found.fill)


def test_a_padding_that_differs_from_place_to_place_is_not_looked_through(seen: Follow) -> None:
    differing = "%k = arith.index_cast %i : index to i32\n%f = arith.sitofp %k : i32 to f32\ntensor.yield %f"
    assert seen(PADDED.replace("tensor.yield %c", differing), [22, 1], [11, 22]) is None


def test_padding_in_padding_is_not_looked_through(seen: Follow) -> None:
    first = PADDED.replace("%v", "%w")
    second = """%v = tensor.pad %w low[0, 0] high[1, 1] {
^bb0(%i: index, %j: index):
  tensor.yield %c : f32
} : tensor<11x22xf32> to tensor<12x23xf32>"""
    assert seen(f"{first}\n{second}", [23, 1], [12, 23]) is None
