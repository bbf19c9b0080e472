"""The Triton kernels of products, softmax and RMSNorm, run on the CPU by Triton's interpreter, against float64.

The interpreter is chosen when a kernel is defined, so one child process runs everything and reports the
largest errors; each test holds one of them against what the dtype allows.

Products are not run in bfloat16: Triton 3.9's interpreter keeps bfloat16 as the integers of its bit patterns and
does arithmetic on those, unless the kernel converts first, as the other two do. tests/gpu has the products.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton")

# The largest error that passes, in multiples of the output's largest magnitude.
ROUNDING = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
DTYPES = tuple(ROUNDING)

PRODUCTS = {
    # Nothing divides evenly: batch, m, n, k, tile.
    "one tile": (2, 13, 21, 37, (32, 64, 64)),
    "several tiles": (3, 40, 50, 70, (16, 16, 32)),
    "groups of rows, the last one short": (1, 150, 40, 20, (16, 16, 16)),
    "even": (2, 64, 32, 64, (16, 16, 32)),
    "one row": (1, 1, 33, 50, (16, 16, 16)),
    "one column": (1, 33, 1, 50, (16, 16, 16)),
    "one term": (2, 20, 20, 1, (16, 16, 16)),
}


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [*PRODUCTS, "transposed", "the launcher's tile", "a view without its ends"])
def test_a_product_is_right_to_the_rounding_of_its_dtype(
    errors: dict[str, float], shape: str, dtype: str
) -> None:
    assert errors[f"product {shape}, {dtype}"] <= ROUNDING[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ["short", "one column", "a power of two", "long", "long, even"])
@pytest.mark.parametrize("kernel", ["softmax", "norm"])
def test_a_row_is_right_to_the_rounding_of_its_dtype(
    errors: dict[str, float], kernel: str, rows: str, dtype: str
) -> None:
    assert errors[f"{kernel} {rows}, {dtype}"] <= ROUNDING[dtype]


@pytest.mark.parametrize("rows", ["short", "long"])
@pytest.mark.parametrize("what", ["masked", "shifted", "nothing"])
def test_softmax_of_special_rows_is_what_torch_gives(errors: dict[str, float], what: str, rows: str) -> None:
    assert errors[f"softmax {what}, {rows}"] <= ROUNDING["float32"]


def test_a_row_of_zeros_is_normalised_to_zeros(errors: dict[str, float]) -> None:
    assert errors["norm of zeros"] == 0


def test_eps_is_added_to_the_mean_of_squares(errors: dict[str, float]) -> None:
    assert errors["norm with a large eps"] <= ROUNDING["float32"]


# --- the child -------------------------------------------------------------------------------------


def _relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Give the largest error; infinite where only one of the two is a number."""
    if not torch.equal(got.isnan(), expected.isnan()):
        return float("inf")
    error = (got.double() - expected.double()).nan_to_num().abs().max()
    return (error / expected.double().nan_to_num().abs().max().clamp(min=1e-300)).item()


def _products(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels import matmul as module

    chosen = module.choose_tile
    for name, (batch, m, n, k, tile) in PRODUCTS.items():
        a, b = torch.randn(batch, m, k).to(dtype), torch.randn(batch, k, n).to(dtype)
        module.choose_tile = lambda *_, tile=tile: (*tile, 4, 2)
        yield f"product {name}", _relative(module.matmul(a, b), a.double() @ b.double())
    a, b = torch.randn(37, 2, 20).to(dtype).permute(1, 2, 0), torch.randn(2, 25, 37).to(dtype).mT
    yield "product transposed", _relative(module.matmul(a, b), a.double() @ b.double())
    a, b = torch.randn(2, 40, 50).to(dtype)[:, 3:-3, 5:-5], torch.randn(2, 60, 30).to(dtype)[:, 7:47, 2:]
    yield "product a view without its ends", _relative(module.matmul(a, b), a.double() @ b.double())
    module.choose_tile = chosen
    a, b = torch.randn(2, 130, 100).to(dtype), torch.randn(2, 100, 70).to(dtype)
    yield "product the launcher's tile", _relative(module.matmul(a, b), a.double() @ b.double())


def _rows(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels import rms_norm as norms
    from tileops.kernels import softmax as softmaxes

    limits = softmaxes._ROW_LIMIT, softmaxes._BLOCK
    lengths = {"short": 131, "one column": 1, "a power of two": 64, "long": 1000, "long, even": 1024}
    for name, columns in lengths.items():
        for module in (norms, softmaxes):
            module._ROW_LIMIT, module._BLOCK = (256, 128) if name.startswith("long") else limits
        # A thousand above zero: without the maximum taken off, exponentials overflow.
        x = (3 * torch.randn(5, columns) + 1000).to(dtype)
        yield f"softmax {name}", _relative(softmaxes.softmax(x), torch.softmax(x.double(), -1))
        x, weight = torch.randn(5, columns).to(dtype), torch.randn(columns).to(dtype)
        expected = torch.nn.functional.rms_norm(x.double(), (columns,), weight.double(), 1e-6)
        yield f"norm {name}", _relative(norms.rms_norm(x, weight, eps=1e-6), expected)


def _special() -> Iterator[tuple[str, float]]:
    from tileops.kernels import rms_norm as norms
    from tileops.kernels import softmax as softmaxes

    infinity = float("inf")
    masked = torch.randn(3, 300)
    masked[:, 10:] = -infinity  # whole blocks of a long row have nothing in them
    masked[1, :5] = -infinity
    nothing = torch.randn(3, 300)
    nothing[0], nothing[1, 200], nothing[2, 7] = -infinity, float("nan"), infinity
    rows = {"masked": masked, "shifted": torch.randn(3, 300) - 1e4, "nothing": nothing}
    limits = softmaxes._ROW_LIMIT, softmaxes._BLOCK
    for length, sizes in {"short": limits, "long": (64, 64)}.items():
        softmaxes._ROW_LIMIT, softmaxes._BLOCK = sizes
        for name, x in rows.items():
            yield f"softmax {name}, {length}", _relative(softmaxes.softmax(x), torch.softmax(x.double(), -1))
    yield "norm of zeros", norms.rms_norm(torch.zeros(2, 50), torch.ones(50), eps=1e-6).abs().max().item()
    x, weight = torch.randn(4, 50), torch.randn(50)
    expected = torch.nn.functional.rms_norm(x.double(), (50,), weight.double(), 3.0)
    yield "norm with a large eps", _relative(norms.rms_norm(x, weight, eps=3.0), expected)


def _main() -> None:
    torch.manual_seed(20)
    found = dict(_special())
    for name in DTYPES:
        dtype = getattr(torch, name)
        for part in (_rows, _products) if dtype is not torch.bfloat16 else (_rows,):
            torch.manual_seed(20)
            found |= {f"{what}, {name}": error for what, error in part(dtype)}
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
