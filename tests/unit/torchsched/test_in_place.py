"""Elementwise code writes an argument where it lies; what reads other elements, or in several steps, does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchsched.backend import Backend, BackendOptions
from torchsched.bindings import available
from torchsched.execution import Compiled
from torchsched.openmp import find_openmp

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)


needs_openmp = pytest.mark.skipif(not find_openmp(), reason=find_openmp().detail)


def compiled(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> tuple[Any, Compiled]:
    """Compile with threads that divide even the smallest work, call once, and give what came and the code."""
    torch._dynamo.reset()
    backend = Backend(BackendOptions(**{"params": {"grain": 1}, **options}))
    found = torch.compile(function, backend=backend, dynamic=False)(*inputs)
    (subgraph,) = backend.subgraphs
    assert subgraph.compiled is not None
    return found, subgraph.compiled


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = 9 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return values > 0 if dtype == torch.bool else values.to(dtype)


def activated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(F.silu(x) * y)


def divided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x // 3 + y)


def flipped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.logical_not_().logical_or_(y)


@pytest.mark.parametrize("shape", [(), (37,), (9, 131)], ids=str)
@pytest.mark.parametrize(
    ("function", "dtype", "threads"),
    [
        (activated, torch.float32, 1),
        pytest.param(activated, torch.float32, 2, marks=needs_openmp),
        (activated, torch.bfloat16, 1),
        (divided, torch.int64, 1),
        (flipped, torch.bool, 1),
        pytest.param(flipped, torch.bool, 2, marks=needs_openmp),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_each_element_is_computed_once_from_what_was_there(
    function: Callable[..., Any], dtype: torch.dtype, shape: tuple[int, ...], threads: int
) -> None:
    x, y = drawn(*shape, dtype=dtype), (drawn(*shape) + 1).to(dtype)
    expected = function(x.clone(), y)
    found, code = compiled(function, x, y, threads=threads)
    assert found is x
    torch.testing.assert_close(x, expected)
    assert code.in_place == {code.signature.index_of("arg0_1")}


def mirrored(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x.flip(0) + y)


def turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x.t() * y)


def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x + x.sum() + y)


def spread(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x[0] + y)


def picked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x[torch.arange(15, -1, -1)] + y)


def exchanged(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    one, other = x + 1, y + 2
    y.copy_(one)
    return x.copy_(other)


def running(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x.cumsum(0) + y)


@pytest.mark.parametrize("function", [mirrored, turned, shifted, spread, picked, exchanged, running])
def test_what_reads_other_elements_is_computed_beside_it(function: Callable[..., Any]) -> None:
    x, y = drawn(16, 16), drawn(16, 16).t().contiguous()
    other_x, other_y = x.clone(), y.clone()
    expected = function(other_x, other_y)
    found, code = compiled(function, x, y)
    torch.testing.assert_close((found, x, y), (expected, other_x, other_y))
    assert not code.in_place


def test_plain_loops_say_nothing_and_write_beside_it() -> None:
    x = drawn(37)
    expected = F.silu(x)
    _, code = compiled(lambda x: x.copy_(F.silu(x)), x, pipeline="loops", params={})
    torch.testing.assert_close(x, expected)
    assert not code.in_place


def test_memory_that_another_argument_shares_is_written_after_the_call() -> None:
    x = drawn(37)
    _, code = compiled(lambda x, y: x.copy_(x * 2 + y), x.clone(), x)
    expected = 3 * x
    assert code(x, x) == ()
    torch.testing.assert_close(x, expected)
