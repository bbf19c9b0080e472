"""Lowers what was imported by plain loops, which depend on no schedule, and calls the machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torchsched.execution import compile_lowered
from torchsched.ingress import Imported
from torchsched.results import results_to_arguments
from torchsched.signature import Signature, TensorType

_BUFFERS = (
    "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}"
)
_BUFFERS_OF_SCANS = (
    "func.func(tm-tensor-bufferize),one-shot-bufferize{copy-before-write bufferize-function-boundaries"
    " function-boundary-type-conversion=identity-layout-map},func.func(tm-tensor-to-loops)"
)
_LOOPS = (
    "func.func(refback-generalize-tensor-pad,refback-generalize-tensor-concat),eliminate-empty-tensors,{buffers},"
    "drop-equivalent-buffer-results,buffer-deallocation-pipeline,convert-bufferization-to-memref,cse,canonicalize,"
    "func.func(refback-munge-memref-copy),func.func(convert-linalg-to-loops),fold-memref-alias-ops,"
    "expand-strided-metadata,canonicalize,lower-affine,finalize-memref-to-llvm,convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,convert-to-llvm,reconcile-unrealized-casts"
)


@dataclass
class Lowered:
    """What the loops give."""

    context: Any
    module: Any
    signature: Signature
    threads: int = 1
    in_place: frozenset[int] = frozenset()
    workspaces: tuple[TensorType, ...] = ()


@dataclass
class Ran:
    """What one call gave: ``output`` as the model returns it, ``written`` by the argument's name."""

    output: Any
    written: dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def run() -> Callable[[Imported, Sequence[Any]], Ran]:
    """Compile what was imported and call it once."""
    passes = pytest.importorskip("torch_mlir.passmanager")

    def run(imported: Imported, inputs: Sequence[Any]) -> Ran:
        buffers = _BUFFERS_OF_SCANS if imported.uses_tm_tensor else _BUFFERS
        results_to_arguments(imported.module, imported.signature)
        with imported.context:
            pipeline = _LOOPS.format(buffers=buffers)
            passes.PassManager.parse(f"builtin.module({pipeline})").run(imported.module.operation)
        lowered = Lowered(imported.context, imported.module, imported.signature)
        compiled = compile_lowered(lowered, optimise=1)  # pyright: ignore[reportArgumentType]
        bound = compiled.bind([each.contiguous() for each in imported.arguments(inputs)])
        bound()
        written = {
            result.writes: value
            for result, value in zip(imported.signature.results, bound.results, strict=True)
            if result.writes is not None
        }
        return Ran(imported.assemble(bound.results), written)

    return run
