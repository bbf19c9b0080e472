"""The library's kernels compiled for a Hopper GPU, which needs no GPU: Triton's wheel carries the assembler.

What runs in the interpreter may still be refused by the compiler, or spill registers at the sizes the
launchers choose. Nothing here says that the result is right or fast.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

HOPPER = ("cuda", 90, 32)


@dataclass(frozen=True)
class Compiled:
    """One kernel with the sizes its launcher gives it for a row of the manifest."""

    module: str
    kernel: str
    types: dict[str, str]
    """Type of each argument that is no compile-time constant; T stands for the dtype."""
    constants: dict[str, object]
    even: tuple[str, ...] = ()
    """Integers that are multiples of 16 in the manifest, which Triton finds out when it launches."""
    options: dict[str, int] = field(default_factory=dict)


def _attention(block_m: int, block_n: int, warps: int, stages: int) -> Compiled:
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*T") | {"lse_ptr": "*fp32"}
    sizes = dict.fromkeys(("q_length", "kv_length", "heads", "group", "head_dim"), "i32")
    return Compiled(
        "attention_fwd",
        "_attention_kernel",
        pointers | sizes | {"scale": "fp32"},
        {"CAUSAL": True, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_D": 128},
        even=("head_dim", "q_length", "kv_length"),
        options={"num_warps": warps, "num_stages": stages},
    )


def _topk(chunk: int, keep: int, warps: int, *, first: bool, last: bool) -> Compiled:
    types = {"source_ptr": "*T" if first else "*i64", "keys_ptr": "*i64", "values_ptr": "*T"}
    return Compiled(
        "topk",
        "_topk_kernel",
        types | {"indices_ptr": "*i64", "count": "i32", "k": "i32"},
        {"CHUNK": chunk, "KEEP": keep, "FIRST": first, "LAST": last},
        options={"num_warps": warps},
    )


def _matmul(tile: tuple[int, int, int, int, int], *, even: bool, precision: str) -> Compiled:
    rows, columns, depth, warps, stages = tile
    strides = [f"stride_{matrix}{axis}" for matrix, axes in STRIDES.items() for axis in axes]
    # The launcher finds strides of 1, and Triton makes them constants.
    ones = dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), 1)
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8}
    return Compiled(
        "matmul",
        "_matmul_kernel",
        dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*T") | dict.fromkeys(("m", "n", "k", *strides), "i32"),
        ones | sizes | {"PRECISION": precision, "EVEN": even},
        even=("m", "n", "k", *(stride for stride in strides if stride not in ones)),
        options={"num_warps": warps, "num_stages": stages},
    )


STRIDES = {"a": "bmk", "b": "bkn", "c": "bmn"}
_ROWS = dict.fromkeys(("dy_ptr", "x_ptr", "weight_ptr", "dx_ptr"), "*T") | {"rstd_ptr": "*fp32"}
_ROWS |= {"partial_ptr": "*fp32", "rows": "i32", "columns": "i32"}
_COMBINE = dict.fromkeys(("expert_out_ptr", "shared_ptr", "out_ptr"), "*T") | {"positions_ptr": "*i32"}
_COMBINE |= {"weights_ptr": "*fp32", "hidden": "i32", "scale": "fp32"}

_SOFTMAX = {"x_ptr": "*T", "y_ptr": "*T", "columns": "i32"}
_NORM = _SOFTMAX | {"weight_ptr": "*T", "eps": "fp32"}

KERNELS = {
    "softmax": Compiled(
        "softmax", "_row_kernel", _SOFTMAX, {"BLOCK": 16384}, even=("columns",), options={"num_warps": 16}
    ),
    "softmax of long rows": Compiled(
        "softmax", "_long_row_kernel", _SOFTMAX, {"BLOCK": 8192}, even=("columns",), options={"num_warps": 32}
    ),
    "rms_norm": Compiled(
        "rms_norm", "_row_kernel", _NORM, {"BLOCK": 16384}, even=("columns",), options={"num_warps": 16}
    ),
    "rms_norm of long rows": Compiled(
        "rms_norm", "_long_row_kernel", _NORM, {"BLOCK": 8192}, even=("columns",), options={"num_warps": 32}
    ),
    "silu": Compiled("silu", "_silu_kernel", {"x_ptr": "*T", "y_ptr": "*T", "count": "i32"}, {"BLOCK": 1024}),
    "rms_norm_bwd rows": Compiled(
        "rms_norm_bwd",
        "_rows_kernel",
        _ROWS,
        {"BLOCK": 4096},
        even=("rows", "columns"),
        options={"num_warps": 8},
    ),
    "rms_norm_bwd partials": Compiled(
        "rms_norm_bwd",
        "_partials_kernel",
        {"partial_ptr": "*fp32", "dweight_ptr": "*T", "programs": "i32", "columns": "i32"},
        {"PARTIALS": 32, "COLUMNS": 64},
    ),
    "moe_combine": Compiled(
        "moe_combine", "_combine_kernel", _COMBINE, {"TOP_K": 8, "HAS_SHARED": True, "BLOCK": 1024}
    ),
    "int8_quant": Compiled(
        "int8_quant",
        "_quant_kernel",
        {"x_ptr": "*T", "values_ptr": "*i8", "scales_ptr": "*fp32", "columns": "i32", "floor": "fp32"},
        {"BLOCK": 16384},
        even=("columns",),
        options={"num_warps": 16},
    ),
    "topk of a router": _topk(128, 8, 1, first=True, last=True),
    "topk, first of several rounds": _topk(2048, 64, 8, first=True, last=False),
    "topk, last of several rounds": _topk(2048, 64, 8, first=False, last=True),
}


MATMULS = [
    # Batch, m, n: one for each tile that the launcher may choose.
    ("bf16", (1, 128, 4096)),
    ("bf16", (32, 256, 256)),
    ("bf16", (1, 4096, 4096)),
    ("bf16", (48, 197, 64)),
    ("bf16", (1, 16, 4096)),
    ("fp32", (1, 128, 4096)),
    ("fp32", (32, 256, 256)),
]


# With 32 warps a thread has 64 registers; Triton 3.7.1 puts two of the long rows' on the stack, 3.9 none.
SPILLED_BYTES = {("softmax of long rows", "fp32"): 8}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_hopper_without_spilling_registers(
    name: str, dtype: str, tmp_path: Path
) -> None:
    assert _spilled(_compile(KERNELS[name], dtype), tmp_path) <= SPILLED_BYTES.get((name, dtype), 0)


@pytest.mark.parametrize(("dtype", "sizes"), [("fp32", (64, 16, 8, 2)), ("bf16", (128, 64, 8, 3))])
def test_attention_compiles_for_hopper_with_loads_ahead_of_use(
    dtype: str, sizes: tuple[int, int, int, int], tmp_path: Path
) -> None:
    compiled = _compile(_attention(*sizes), dtype)
    assert _spilled(compiled, tmp_path) == 0
    assert "cp.async" in compiled.asm["ptx"]
    # Tensor cores for 16-bit products; float32 stays float32, never TF32.
    assert ("wgmma" in compiled.asm["ptx"]) == (dtype == "bf16")
    assert "tf32" not in compiled.asm["ptx"]


@pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])
@pytest.mark.parametrize(("dtype", "shape"), MATMULS)
def test_a_product_compiles_for_hopper_with_loads_ahead_of_use(
    dtype: str, shape: tuple[int, int, int], even: bool, tmp_path: Path
) -> None:
    from tileops.kernels.matmul import choose_tile

    wide = dtype == "fp32"
    tile = choose_tile(*shape, torch.float32 if wide else torch.bfloat16, 132)
    compiled = _compile(_matmul(tile, even=even, precision="ieee" if wide else "tf32"), dtype)
    assert _spilled(compiled, tmp_path) == 0
    assert "cp.async" in compiled.asm["ptx"]
    assert ("wgmma" in compiled.asm["ptx"]) == (not wide)
    assert "tf32" not in compiled.asm["ptx"]


def _compile(what: Compiled, dtype: str):
    from importlib import import_module

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(import_module(f"tileops.kernels.{what.module}"), what.kernel)
    names = kernel.arg_names
    signature = {
        name: "constexpr" if name in what.constants else what.types[name].replace("T", dtype)
        for name in names
    }
    aligned = [name for name in names if signature[name].startswith("*") or name in what.even]
    source = ASTSource(
        kernel,
        signature,
        {(names.index(name),): value for name, value in what.constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    # Said aloud, because Triton 3.9 warns where it is left to a default that is about to change.
    options = what.options | {"enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget(*HOPPER), options=options)


def _spilled(compiled, folder: Path) -> int:
    """Give the bytes of stack that a thread uses, which is where registers spill to."""
    binary = folder / "kernel.cubin"
    binary.write_bytes(compiled.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    done = subprocess.run([tool, "-res-usage", binary], capture_output=True, text=True, check=True)
    return int(re.search(r"STACK:(\d+)", done.stdout)[1])
