"""What torch-mlir gets wrong is right here; and an entry that torch-mlir no longer needs fails its test, and can go."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

pytest.importorskip("torch_mlir")

from tests.forked import Forked
from torchsched.building import BuildOptions, build
from torchsched.ingress import exporting, upstream

aten = torch.ops.aten
Compile = Callable[..., Any]
NAN = torch.tensor([[0.5, float("nan"), 2.0, -1.0], [float("nan"), 1.0, float("inf"), 3.0]])
WHOLE = torch.tensor([[-7, 1 << 40, 3], [(1 << 55) + 1, -5, 0]])
SMALL = torch.tensor([[0, 200], [3, 0], [0, 0]], dtype=torch.uint8)
ROWS = torch.arange(24.0).reshape(4, 6)


def _bag(index: torch.Tensor, weight: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    return functional.embedding_bag(index, weight, torch.tensor([0, 2]), mode="sum", per_sample_weights=each)


REWRITES: dict[str, tuple[tuple[Any, ...], Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "any": ((aten.any.default, aten.any.dim), lambda x: (x.any(), x.any(1)), (SMALL,)),
    "all": ((aten.all.default, aten.all.dim), lambda x: (x.all(), x.all(1)), (SMALL,)),
    "power of whole numbers": ((aten.pow.Tensor_Scalar,), lambda x: x**3, (WHOLE,)),
    "roll": ((aten.roll.default,), lambda x: x.roll(-2), (ROWS,)),
    "negative pad": ((aten.constant_pad_nd.default,), lambda x: functional.pad(x, (-1, 2, 1, -2)), (ROWS,)),
    "padded transposed convolution": (
        (aten.convolution.default,),
        lambda x, w: functional.conv_transpose2d(x, w, None, (5, 2), (2, 3), (4, 1), 1, (2, 1)),
        (torch.ones(2, 8, 1, 9), torch.ones(8, 16, 1, 3)),
    ),
    "maximum": ((aten.maximum.default,), lambda x: torch.maximum(x, x.flip(1)), (NAN,)),
    "minimum": ((aten.minimum.default,), lambda x: torch.minimum(x, x.flip(1)), (NAN,)),
    "clamp between tensors": ((aten.clamp.Tensor,), lambda x: torch.clamp(x.abs(), x.flip(1), x), (NAN,)),
    "hardtanh": ((aten.hardtanh.default,), functional.hardtanh, (NAN,)),
    "extremes of one number": (
        (aten.amax.default, aten.amin.default),
        lambda x: (x.sum().amax(0), x.sum().amin(0)),
        (ROWS,),
    ),
    "negation": ((aten.neg.default,), lambda x: -x, (WHOLE,)),
    "quotient by a number": (
        (aten.floor_divide.default, aten.div.Scalar_mode, aten.div.Tensor_mode),
        lambda x: (x // 3, torch.div(x, 3, rounding_mode="trunc"), x // (x.abs() + 3)),
        (WHOLE,),
    ),
}


@pytest.mark.spec("L4")
@pytest.mark.parametrize("entry", REWRITES)
def test_what_is_rewritten_is_right(compiled: Compile, entry: str) -> None:
    _, function, inputs = REWRITES[entry]
    torch.testing.assert_close(compiled(function, *inputs), function(*inputs), equal_nan=True)
    assert _right(compiled, function, inputs)


@pytest.mark.parametrize("entry", REWRITES)
def test_a_rewrite_is_needed_still(compiled: Compile, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets, function, inputs = REWRITES[entry]
    for target in targets:
        monkeypatch.delitem(upstream._REWRITES, target, raising=False)
    assert not _right(compiled, function, inputs), f"torch-mlir does {entry} right: its entry can go"


COMPARISONS: dict[str, Callable[..., Any]] = {
    "clamp": lambda x: x.clamp(-1, 1),
    "argmax": lambda x: (x.argmax(1), x.argmin(0), x.max(1).indices),
    "sort": lambda x: (x.sort(1).values, x.sort(1, descending=True).values, x.topk(2, 1).values),
}


@pytest.mark.spec("L4")
@pytest.mark.parametrize("entry", COMPARISONS)
def test_nan_is_compared_as_pytorch_compares_it(compiled: Compile, entry: str) -> None:
    function = COMPARISONS[entry]
    torch.testing.assert_close(compiled(function, NAN), function(NAN), equal_nan=True)


@pytest.mark.parametrize("entry", COMPARISONS)
def test_comparisons_need_mending_still(
    compiled: Compile, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchsched.ingress.importing.mend", lambda module: None)
    function = COMPARISONS[entry]
    assert not _right(compiled, function, (NAN,)), (
        f"torch-mlir keeps NaN in {entry}: mend need not look for it"
    )


@pytest.mark.spec("L4")
def test_the_weights_of_an_embedding_bag_are_refused_by_name(compiled: Compile) -> None:
    index, weight, each = torch.tensor([0, 1, 2, 3]), torch.ones(4, 2), torch.arange(1.0, 5.0)
    with pytest.raises(Exception, match=r"(?s)per_sample_weights.*aten\._embedding_bag"):
        compiled(_bag, index, weight, each)


def test_the_weights_of_an_embedding_bag_are_still_ignored(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_REFUSED", {})
    inputs = torch.tensor([0, 1, 2, 3]), torch.ones(4, 2), torch.arange(1.0, 5.0)
    assert not _right(compiled, _bag, inputs), "torch-mlir reads per_sample_weights: they need not be refused"


DECOMPOSED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "gelu by tanh": (lambda x: functional.gelu(x, approximate="tanh"), torch.linspace(-4, 4, 99)),
}


@pytest.mark.spec("L4")
@pytest.mark.parametrize("entry", DECOMPOSED)
def test_what_is_taken_apart_is_right(compiled: Compile, entry: str) -> None:
    function, x = DECOMPOSED[entry]
    torch.testing.assert_close(compiled(function, x), function(x))


@pytest.mark.parametrize("entry", DECOMPOSED)
def test_what_is_taken_apart_has_to_be(
    compiled: Compile, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "decompositions", dict)
    function, x = DECOMPOSED[entry]
    assert not _right(compiled, function, (x,)), f"torch-mlir has {entry}: its decomposition can go"


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "function", [lambda x: x.softmax(0), lambda x: x.log_softmax(0)], ids=["plain", "log"]
)
@pytest.mark.parametrize("number", [3.0, float("inf"), float("nan")])
def test_softmax_of_one_number_is_right(
    compiled: Compile, function: Callable[..., Any], number: float
) -> None:
    x = torch.tensor(number)
    torch.testing.assert_close(compiled(function, x), function(x), equal_nan=True)


@pytest.mark.slow
def test_the_import_of_softmax_of_one_number_still_never_ends() -> None:
    assert (
        _ends(
            """
        del upstream._REWRITES[torch.ops.aten._softmax.default]
        torch.compile(lambda x: x.softmax(0), backend="kernelmark-mlir")(torch.tensor(3.0))
        """,
            limit_s=8,
        )
        is None
    ), "the import ends: the entry can go"


@pytest.mark.spec("L4")
def test_an_axis_that_is_counted_from_the_end_is_scattered_along(compiled: Compile) -> None:
    def scattered(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(2, 8).scatter(-1, index, x)

    inputs = torch.tensor([[1], [2]]), torch.ones(2, 1)
    torch.testing.assert_close(compiled(scattered, *inputs), scattered(*inputs))


def test_an_axis_that_is_counted_from_the_end_still_ends_the_process() -> None:
    code = _ends(
        """
        upstream._count_axis_from_the_front = lambda node: None
        scatter = lambda index, x: torch.zeros(2, 8).scatter(-1, index, x)
        torch.compile(scatter, backend="kernelmark-mlir")(torch.tensor([[1], [2]]), torch.ones(2, 1))
        """
    )
    assert code is not None
    assert code < 0, "torch-mlir takes such an axis: _count_axis_from_the_front can go"


@pytest.mark.spec("L4")
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # PyTorch's
def test_a_variance_of_too_few_is_that_of_eager(compiled: Compile) -> None:
    def spread(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.var(x, 1, correction=9), *torch.var_mean(x[:, :1], 1)

    torch.testing.assert_close(compiled(spread, ROWS), spread(ROWS), equal_nan=True)


def test_a_variance_of_too_few_still_ends_the_process() -> None:
    code = _ends(
        """
        del upstream._REWRITES[torch.ops.aten.var.correction]
        spread = lambda x: torch.var(x, 1, correction=9)
        torch.compile(spread, backend="kernelmark-mlir")(torch.ones(4, 6))
        """
    )
    assert code is not None
    assert code < 0, "torch-mlir divides by nothing, as PyTorch does: the entry can go"


@pytest.mark.spec("L4")
def test_a_sum_of_exponentials_is_refused_by_name(compiled: Compile) -> None:
    with pytest.raises(Exception, match=r"(?s)overflows.*aten\.logcumsumexp"):
        compiled(lambda x: x.logcumsumexp(0), torch.tensor([1000.0, 1.0]))


def test_a_sum_of_exponentials_still_overflows(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_REFUSED", {})
    x = torch.tensor([1000.0, 1.0])
    assert not _right(compiled, lambda x: x.logcumsumexp(0), (x,)), (
        "torch-mlir takes the maximum off: it can go"
    )


@pytest.mark.spec("L4")
def test_every_place_that_a_mask_picks_gets_the_same(compiled: Compile) -> None:
    def put(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.index_put((x[:, 0] > 3,), torch.arange(6.0), accumulate=True),
            x.index_put((x[:, 0] > 99,), torch.arange(6.0), accumulate=True),
            x.index_put((x > 9,), torch.tensor(2.0)),
        )

    torch.testing.assert_close(compiled(put, ROWS), put(ROWS))


def test_a_mask_that_picks_nothing_still_writes() -> None:
    # In a process of its own: it reads and writes where no memory is.
    code = _ends(
        """
        del upstream._REWRITES[torch.ops.aten.index_put.default]
        put = lambda x: x.index_put((x[:, 0] > 99,), torch.arange(6.0) + 1, accumulate=True)
        x = torch.zeros(4, 6)
        assert torch.equal(torch.compile(put, backend="kernelmark-mlir")(x), x)
        """,
        afresh=True,
    )
    assert code != 0, "torch-mlir puts nothing there: the entry can go"


@pytest.mark.spec("L4")
def test_values_that_a_mask_counts_are_refused_by_name(compiled: Compile) -> None:
    with pytest.raises(Exception, match=r"(?s)a mask that says where.*aten\.index_put"):
        compiled(lambda x, v: x.index_put((x > 21,), v), ROWS, torch.ones(2))


@pytest.mark.spec("L4")
def test_a_pooling_of_whole_numbers_is_refused_by_name(compiled: Compile) -> None:
    x = torch.arange(64).reshape(1, 1, 4, 4, 4)
    with pytest.raises(Exception, match=r"(?s)int64; convert.*aten\.max_pool3d_with_indices"):
        compiled(lambda x: functional.max_pool3d(x, 2), x)


def test_a_pooling_of_whole_numbers_still_ends_the_process() -> None:
    code = _ends(
        """
        upstream._REFUSED.clear()
        pool = lambda x: torch.nn.functional.max_pool3d(x, 2)
        torch.compile(pool, backend="kernelmark-mlir")(torch.arange(64).reshape(1, 1, 4, 4, 4))
        """
    )
    assert code is not None
    assert code < 0, "torch-mlir takes it, or says why not: it need not be refused here"


def _ends(script: str, *, limit_s: float = 40, afresh: bool = False) -> int | None:
    """Give the exit code of a process of its own that runs ``script``; None where it does not end in time.

    Where it depends on what the memory holds, it is started afresh.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text("import torch\nfrom torchsched.ingress import upstream\n" + textwrap.dedent(script))
        if afresh:
            return subprocess.run(
                [sys.executable, str(path)], capture_output=True, timeout=limit_s, check=False
            ).returncode
        program = Forked([str(path)])
        try:
            return program.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            program.kill()
            program.communicate()


def _right(compiled: Compile, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether an answer is right both ways: PyTorch gives another graph where a model is imported as a whole."""

    class Whole(nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return function(*given)

    def whole() -> Any:
        built = build(Whole(), inputs, BuildOptions(pipeline="loops"))
        return built.imported.assemble(built.compiled(*built.imported.arguments(inputs)))

    expected = function(*inputs)
    for answer in (lambda: compiled(function, *inputs), whole):
        try:
            torch.testing.assert_close(answer(), expected, equal_nan=True)
        except Exception:  # noqa: BLE001 - refused or wrong
            return False
    return True
