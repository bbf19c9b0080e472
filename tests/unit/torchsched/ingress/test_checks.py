"""Indices and divisors: wrapped as eager wraps them, and an error where eager raises one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

pytest.importorskip("torch_mlir")

from kernelmark.errors import ModelRunError

ROWS = torch.arange(20.0).reshape(4, 5)
Compile = Callable[..., Any]


def _put(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return x.index_put((index,), values)


@pytest.mark.spec("L4")
def test_a_negative_index_writes_the_rows_that_it_counts_from_the_end(compiled: Compile) -> None:
    index, values = torch.tensor([-1, 0]), torch.ones(2, 5)
    torch.testing.assert_close(compiled(_put, ROWS, index, values), _put(ROWS, index, values))


@pytest.mark.spec("L4")
def test_a_negative_index_that_the_graph_holds_writes_there_too(compiled: Compile) -> None:
    def put(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[[-1, 0], 1:4:2] = values
        return y

    torch.testing.assert_close(compiled(put, ROWS, torch.ones(2, 2)), put(ROWS, torch.ones(2, 2)))


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_put((i,), torch.ones(2, 5)),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i[:, None]),
        lambda x, i: x.scatter(0, i[:, None], 1.0),
        lambda x, i: x.index_add(0, i, torch.ones(2, 5)),
        lambda x, i: functional.embedding(i, x),
        lambda x, i: functional.nll_loss(x[:2], i),
    ],
    ids=["index", "index_put", "index_select", "gather", "scatter", "index_add", "embedding", "nll_loss"],
)
@pytest.mark.parametrize("wrong", [5, 1 << 40], ids=["just outside", "far outside"])
def test_an_index_out_of_range_is_an_error_that_names_operator_and_line(
    compiled: Compile, function: Callable[..., Any], wrong: int
) -> None:
    with pytest.raises(
        ModelRunError, match=r"out of range for an axis of [45] in aten\..*test_checks\.py:\d+"
    ):
        compiled(function, ROWS, torch.tensor([0, wrong]))


@pytest.mark.spec("L4")
def test_a_class_that_is_ignored_is_no_index(compiled: Compile) -> None:
    classes = torch.tensor([1, -100, 4, 0])
    expected = functional.cross_entropy(ROWS, classes)
    torch.testing.assert_close(compiled(functional.cross_entropy, ROWS, classes), expected)


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a // b,
        lambda a, b: a % b,
        torch.fmod,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    ],
    ids=["floor", "remainder", "fmod", "trunc"],
)
def test_a_whole_number_divided_by_zero_is_an_error_and_the_process_lives(
    compiled: Compile, function: Callable[..., Any]
) -> None:
    with pytest.raises(ModelRunError, match="divided by zero"):
        compiled(function, torch.tensor([4, 5]), torch.tensor([2, 0]))
    numbers, divisors = torch.tensor([-7, 7]), torch.tensor([2, -3])
    torch.testing.assert_close(compiled(function, numbers, divisors), function(numbers, divisors))


@pytest.mark.spec("L4")
def test_indices_that_are_known_and_fine_cost_no_check(compiled: Compile) -> None:
    got = compiled(lambda x: x[torch.tensor([0, 2])], ROWS)
    torch.testing.assert_close(got, ROWS[[0, 2]])
    (subgraph,) = compiled.backend.subgraphs  # type: ignore[attr-defined]
    assert subgraph.compiled is not None
    assert subgraph.compiled.signature.checks == ()
