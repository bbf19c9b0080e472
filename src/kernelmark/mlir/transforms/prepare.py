"""Brings an imported module into the form that the other transforms read: generic operations, fused, nothing unused."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.mlir.bindings import Module, Operation, bindings
from kernelmark.mlir.interpreter import apply_sequence, sequence
from kernelmark.mlir.targets import Target

__all__ = ["generalise", "simplify"]

_NEVER = "unimplemented: tensor with zero element"
"""What torch-mlir says where a reciprocal meets zero. torch gives infinity, and so does the division after it."""

PRODUCTS = [
    "matmul",
    "batch_matmul",
    "matvec",
    "vecmat",
    "batch_matvec",
    "batch_vecmat",
    "dot",
    "batch_reduce_matmul",
    "mmt4d",
    "batch_mmt4d",
    "contract",
    "quantized_matmul",
    "quantized_batch_matmul",
]
"""Products of matrices and vectors by name; :mod:`kernelmark.mlir.transforms.matmul` reads them so."""

_HANDLE = "!transform.any_op"

_OTHERS = frozenset({"generic", "fill", "yield", "index", *PRODUCTS, "pack", "unpack", "softmax"})


def simplify(module: Module, *, target: Target) -> None:
    """Drop what is never needed, write named operations as generic ones, and fuse elementwise ones.

    Products and convolutions keep their names.
    """
    del target
    ir, passmanager = bindings("ir"), bindings("passmanager")
    for operation in list(_nested(module.operation)):
        if operation.name == "cf.assert" and operation.attributes["msg"].value == _NEVER:
            operation.erase()
    _generalise(module, lambda name: name not in _OTHERS and "conv" not in name)
    with module.context, ir.Location.unknown(module.context):
        passes = "linalg-fuse-elementwise-ops,canonicalize,cse"
        passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)


def generalise(module: Module, *, target: Target) -> None:
    """Write all named operations that are left, products and convolutions too, as generic ones."""
    del target
    _generalise(
        module, lambda name: name not in ("generic", "fill", "yield", "index", "pack", "unpack", "softmax")
    )


def _generalise(module: Module, wanted) -> None:  # type: ignore[no-untyped-def]
    names = sorted(
        {
            operation.name
            for operation in _nested(module.operation)
            if operation.name.startswith("linalg.") and wanted(operation.name.removeprefix("linalg."))
        }
    )
    if not names:
        return
    listed = ", ".join(f'"{name}"' for name in names)
    apply_sequence(
        module,
        sequence(
            f"%found = transform.structured.match ops{{[{listed}]}} in %root : ({_HANDLE}) -> {_HANDLE}\n"
            f"%generic = transform.structured.generalize %found : ({_HANDLE}) -> {_HANDLE}"
        ),
    )


def _nested(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _nested(inner.operation)
