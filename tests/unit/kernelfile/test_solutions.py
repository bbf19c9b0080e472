"""Buffer sizes: told, asked for, or inferred by the documented rule."""

from __future__ import annotations

import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.kernelfile import parse_signature
from kernelmark.kernelfile.solutions import fill, infer_sizes


def sizes(scalars: dict[str, float], shapes=None, ptr_size: int = 0, kind: str = "int"):
    parameters = "".join(f", {kind} {name}" for name in scalars)
    signature = parse_signature(f'extern "C" void solve(const float* a, float* b{parameters}) {{}}', "k.cu")
    return infer_sizes(signature, scalars, shapes or {}, ptr_size)


@pytest.mark.parametrize(
    ("scalars", "count"),
    [
        ({}, 2**20), ({"n": 7}, 7), ({"m": 3, "n": 5}, 15), ({"m": 3, "n": 5, "k": 2}, 15),
        ({"m": 2**16, "n": 2**16}, 2**28), ({"n": 0}, 1),
    ],
)  # fmt: skip
def test_integers_decide_as_documented(scalars: dict[str, int], count: int) -> None:
    found = sizes(scalars)
    assert found.by_name["a"] == found.by_name["b"] == (count,)
    assert found.inferred == {"a", "b"}
    assert "inferred" in found.how


def test_floats_are_no_dimensions() -> None:
    assert sizes({"eps": 100.0}, kind="float").by_name["a"] == (2**20,)


def test_the_command_line_s_size_comes_before_inference_and_shapes_before_both() -> None:
    found = sizes({"n": 7}, {"b": (2, 3)}, ptr_size=9)
    assert (found.by_name["a"], found.by_name["b"]) == ((9,), (2, 3))
    assert found.inferred == {"a"}
    assert found.describe() == {"a": "9", "b": "2×3"}


@pytest.mark.parametrize("shapes", [{"c": (1,)}, {"a": "wide"}, {"a": (-1, 2)}, {"a": None}])
def test_shapes_that_are_none_are_refused(shapes) -> None:
    with pytest.raises(UsageError, match=r"shapes\(\) gives"):
        sizes({"n": 1}, shapes)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "uint64", "bool"]
)
def test_a_buffer_of_each_dtype_can_be_drawn(dtype: str) -> None:
    drawn = fill(dtype, (64,), "cpu")
    assert (drawn.dtype, drawn.shape) == (getattr(torch, dtype), (64,))
    assert len(set(drawn.tolist())) > 1


def test_a_tensor_is_copied_into_the_buffer() -> None:
    given = torch.tensor([3, 1, 2])
    drawn = fill("int32", given, "cpu")
    assert drawn.tolist() == [3, 1, 2]
    assert drawn.dtype == torch.int32
    assert drawn.data_ptr() != given.data_ptr()
