"""Modules written by hand, lowered by a short pipeline that depends on no schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from torchsched.signature import Argument, Result, Role, Signature, TensorType

LOOPS = (
    "func.func(convert-linalg-to-loops),convert-scf-to-openmp,canonicalize,cse,"
    "fold-memref-alias-ops,expand-strided-metadata,lower-affine,finalize-memref-to-llvm,convert-scf-to-cf,"
    "convert-openmp-to-llvm,convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,convert-to-llvm,"
    "reconcile-unrealized-casts"
)
"""From memrefs, loops and linalg operations to the LLVM dialect."""


@dataclass
class ByHand:
    """What lowering gives, of a module that no model was imported for."""

    context: Any
    module: Any
    signature: Signature
    threads: int = 1
    workspaces: tuple[TensorType, ...] = ()
    in_place: frozenset[int] = frozenset()


@pytest.fixture
def lower_text() -> Callable[..., ByHand]:
    """Lower MLIR text whose ``main`` takes memrefs: ``lower_text(text, arguments, results, threads=2)``."""
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.passmanager import PassManager

    def lower(
        text: str,
        arguments: list[TensorType],
        results: list[TensorType],
        *,
        writes: tuple[str | None, ...] = (),
        pipeline: str = LOOPS,
        **others: Any,
    ) -> ByHand:
        context = ir.Context()
        with context:
            module = ir.Module.parse(text)
            PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        written = writes or (None,) * len(results)
        signature = Signature(
            tuple(Argument(f"x{i}", Role.INPUT, type_) for i, type_ in enumerate(arguments)),
            tuple(
                Result(f"y{i}", type_, write)
                for i, (type_, write) in enumerate(zip(results, written, strict=True))
            ),
        )
        return ByHand(context, module, signature, **others)

    return lower


class _Compiled:
    """Compiles a function of tensors by ``torch.compile``, on one thread, and calls it."""

    backend: Any

    def __call__(self, function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> Any:
        import torch

        from torchsched.backend import Backend, BackendOptions

        torch._dynamo.reset()
        self.backend = Backend(BackendOptions(threads=1))
        return torch.compile(function, backend=self.backend, dynamic=dynamic)(*inputs)


@pytest.fixture
def compiled() -> Iterator[_Compiled]:
    """Compile and call at once: ``compiled(function, *inputs)``; ``compiled.backend`` has what it was compiled by."""
    import torch

    yield _Compiled()
    torch._dynamo.reset()
