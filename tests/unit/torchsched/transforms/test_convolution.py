"""Models with convolutions, as torch-mlir imports them, by the shipped pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from torchsched.bindings import available
from torchsched.building import BuildOptions, build
from torchsched.openmp import find_openmp
from torchsched.targets import Target, detect, override

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)
SERIAL = detect(threads=1)
STRAIGHT = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Calls(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def run(
    function: Callable[..., Any], inputs: list[torch.Tensor], target: Target = SERIAL
) -> tuple[tuple[torch.Tensor, ...], str]:
    """Compile a function and call it once; give its results, and the module once convolutions were written."""
    texts: list[str] = []

    def observe(step: str, module: Any) -> None:
        if "tile_convolutions" in step:
            texts.append(str(module))

    options = BuildOptions(("conv",), target=target)
    built = build(Calls(function).eval(), inputs, options, observer=observe)
    bound = built.compiled.bind(built.imported.arguments(inputs))
    for result in bound.results:
        result.fill_(float("nan"))  # what is not written shows
    bound()
    found = built.imported.assemble(bound.results)
    return (found if isinstance(found, tuple) else (found,)), texts[0]


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found.double() - wanted).abs() / (wanted.abs() + wanted.abs().mean() + 1e-30)).max().item()


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


# --- any ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A convolution, and the shapes of what it takes."""

    call: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    words: str

    def __repr__(self) -> str:
        return self.words


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    batch, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 4, 8, 17, 34]))
    # torch-mlir cannot import a transposed convolution channel by channel
    assume(not (transposed and groups > 1 and inputs == outputs == 1))

    def each(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    places = [*each(1, 6)[1:], draw(st.integers(1, 27))]
    kernel, stride, dilation, padding = each(1, 4), each(1, 3), each(1, 3), each(0, 3)
    if transposed:
        more = [min(extra, max(s, d) - 1) for extra, s, d in zip(each(0, 2), stride, dilation, strict=True)]
        weight = (groups * inputs, outputs, *kernel)
        options = (stride, padding, more, groups, dilation)
        sizes = [
            (i - 1) * s - 2 * p + d * (k - 1) + extra + 1
            for i, s, p, d, k, extra in zip(places, stride, padding, dilation, kernel, more, strict=True)
        ]
    else:
        weight = (groups * outputs, inputs, *kernel)
        options = (stride, padding, dilation, groups)
        sizes = [
            i + 2 * p - d * (k - 1) for i, p, d, k in zip(places, padding, dilation, kernel, strict=True)
        ]
    assume(min(sizes) > 0)
    # torch-mlir has no three-dimensional convolution of one channel to one in each group, and is refused by name
    assume(not (rank == 3 and groups > 1 and inputs == outputs == 1))
    function = (TRANSPOSED if transposed else STRAIGHT)[rank - 1]
    shapes: tuple[tuple[int, ...], ...] = ((batch, groups * inputs, *places), weight)
    if draw(st.booleans()):
        shapes += ((groups * outputs,),)

    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return function(x, weight, bias, *options)

    return Case(call, shapes, f"{function.__name__}{shapes} {options}")


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    several=st.lists(cases(), min_size=2, max_size=2),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float64]),
    threads=st.sampled_from([1, 2] if find_openmp() else [1]),
    feature=st.sampled_from([None, "none"]),
)
def test_any_small_convolution_is_right(
    several: list[Case], dtype: torch.dtype, threads: int, feature: str | None
) -> None:
    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(inputs)
        return tuple(case.call(*(next(left) for _ in case.shapes)) for case in several)

    target = detect(threads=threads)
    if feature is not None and target.name == "x86_64":
        target = override(target, feature=feature)
    inputs = drawn(*(shape for case in several for shape in case.shapes), dtype=dtype)
    found, _ = run(function, inputs, target)
    limit = {torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float64: 1e-10}[dtype]
    for case, given_, wanted in zip(several, found, function(*(x.double() for x in inputs)), strict=True):
        assert given_.dtype == dtype
        assert error(given_, wanted) < limit, case


# --- what becomes of which ------------------------------------------------------------------------


def test_a_transposed_one_with_steps_multiplies_no_zeros() -> None:
    inputs = drawn((2, 16, 3, 4, 12), (16, 8, 3, 5, 7))
    (found,), text = run(lambda x, w: F.conv_transpose3d(x, w, None, 2, (1, 2, 3), 1, 2), inputs)
    wanted = F.conv_transpose3d(*(each.double() for each in inputs), None, 2, (1, 2, 3), 1, 2)
    assert error(found, wanted) < 1e-4
    assert "linalg.conv" not in text
    after = text[text.index("vector.fma") :]
    assert "insert_slice" not in after  # the spread-out input is nobody's any more


def test_taps_that_meet_nothing_leave_the_bias() -> None:
    inputs = drawn((2, 8, 5, 6), (8, 16, 3, 3), (16,))
    (found,), text = run(lambda *a: F.conv_transpose2d(*a, 2, 1, 0, 1, 2), inputs)
    assert error(found, F.conv_transpose2d(*(each.double() for each in inputs), 2, 1, 0, 1, 2)) < 1e-4
    assert "vector.fma" in text


def test_a_sum_goes_on_from_a_tensor() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.pad(F.relu(x), (1, 2, 0, 3)), w, None, 1, 1) + y

    inputs = drawn((2, 8, 9, 10), (16, 8, 3, 3), (2, 16, 12, 13))
    (found,), text = run(function, inputs)
    assert error(found, function(*(each.double() for each in inputs))) < 1e-4
    assert "vector.fma" in text


@pytest.mark.parametrize("padding", [0, 1])
def test_padding_is_nowhere_but_in_the_rows(padding: int) -> None:
    inputs = drawn((1, 8, 9, 20), (16, 8, 3, 3))
    (found,), text = run(lambda x, w: F.conv2d(x, w, None, 1, padding), inputs)
    assert error(found, F.conv2d(*(each.double() for each in inputs), None, 1, padding)) < 1e-4
    pads = re.findall(r"tensor\.pad .*low\[([\d, ]+)\] high\[([\d, ]+)\]", text[: text.index("vector.fma")])
    assert pads[-1:] == ([("0, 0, 0, 1", "0, 0, 0, 1")] if padding else [])


def test_padding_may_go_beyond_what_the_kernel_reaches() -> None:
    options = ((5, 2), (2, 3), (4, 1), 1, (2, 1))
    inputs = drawn((2, 8, 1, 9), (8, 16, 1, 3), (16,))
    (found,), _ = run(lambda *a: F.conv_transpose2d(*a, *options), inputs)
    assert error(found, F.conv_transpose2d(*(each.double() for each in inputs), *options)) < 1e-4


@pytest.mark.parametrize("outputs", [1, 3])
def test_few_channels_are_left_to_vectors_along_rows(outputs: int) -> None:
    inputs = drawn((1, 6, 9, 20), (6 * outputs, 1, 3, 3))
    (found,), text = run(lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6), inputs)
    assert error(found, F.conv2d(*(each.double() for each in inputs), None, 1, 1, 1, 6)) < 1e-4
    assert "vector.fma" not in text


@pytest.mark.skipif(not find_openmp(), reason=find_openmp().detail)
@pytest.mark.parametrize(("shape", "groups"), [((1, 8, 6, 20), 1), ((1, 8, 3, 20), 2)], ids=str)
def test_threads_share_what_there_is_enough_of(shape: tuple[int, ...], groups: int) -> None:
    inputs = drawn(shape, (32, shape[1] // groups, 3, 3))
    target = detect(threads=2)
    (found,), text = run(lambda x, w: F.conv2d(x, w, None, 1, 1, 1, groups), inputs, target)
    assert error(found, F.conv2d(*(each.double() for each in inputs), None, 1, 1, 1, groups)) < 1e-4
    assert "scf.forall" in text
