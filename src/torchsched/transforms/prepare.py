"""Brings an imported module into the form that the other transforms read: generic operations, fused, nothing unused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.interpreter import apply_sequence, sequence
from torchsched.targets import Target
from torchsched.transforms.repeating import repeat_for_other_rows
from torchsched.transforms.vectors.views import RESHAPES, root_of

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
"""Products of matrices and vectors by name; :mod:`torchsched.transforms.matmul` reads them so."""

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
    with module.context, ir.Location.unknown(module.context), factors_apart(module):
        fuse = "linalg-fuse-elementwise-ops"
        passmanager.PassManager.parse(f"builtin.module({fuse},canonicalize,cse)").run(module.operation)
        if repeat_for_other_rows(module):  # before the copies are taken for one again
            passmanager.PassManager.parse(f"builtin.module({fuse},canonicalize)").run(module.operation)


def generalise(module: Module, *, target: Target) -> None:
    """Write all named operations that are left, products and convolutions too, as generic ones."""
    del target
    _generalise(
        module, lambda name: name not in ("generic", "fill", "yield", "index", "pack", "unpack", "softmax")
    )


def _generalise(module: Module, wanted: Callable[[str], bool]) -> None:
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


# --- products keep their factors ------------------------------------------------------------------

_APART = "kernelmark_apart"


@contextmanager
def factors_apart(module: Module) -> Iterator[None]:
    """Keep what computes a product's factor from being fused into the product, meanwhile.

    Fused, it would be computed again for every row or column of the result, and the product would be none any more:
    a softmax's quotient went into the product after it, and attention took twice the time. A call to a function that
    is not there stands between the two; transposes and widenings, which products read through, go in as before.
    """
    ir = bindings("ir")
    declared: dict[str, Operation] = {}
    for operation in list(_nested(module.operation)):
        if operation.name.removeprefix("linalg.") not in PRODUCTS:
            continue
        for number, value in enumerate(list(operation.operands)[: -len(operation.results)]):
            if not _computes(value):
                continue
            name = _declaration(module, declared, value.type)
            with ir.InsertionPoint(operation), operation.location:
                call = ir.Operation.create(
                    "func.call",
                    results=[value.type],
                    operands=[value],
                    attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
                )
            operation.operands[number] = call.result
    try:
        yield
    finally:
        for operation in list(_nested(module.operation)):
            if operation.name == "func.call" and operation.attributes["callee"].value.startswith(_APART):
                operation.result.replace_all_uses_with(operation.operands[0])
                operation.erase()
        for declaration in declared.values():
            declaration.erase()


def _declaration(module: Module, declared: dict[str, Operation], kind: Any) -> str:
    ir = bindings("ir")
    if str(kind) not in declared:
        with ir.InsertionPoint.at_block_begin(module.body):
            declared[str(kind)] = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(f"{_APART}_{len(declared)}"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get([kind], [kind])),
                    "sym_visibility": ir.StringAttr.get("private"),
                },
                regions=1,
            )
    return declared[str(kind)].attributes["sym_name"].value


def _computes(value: Any) -> bool:
    """Whether a tensor is made by an elementwise operation that does more than move and widen elements."""
    owner = root_of(value, RESHAPES).owner
    if not hasattr(owner, "opview") or owner.name != "linalg.generic":
        return False
    if any("parallel" not in str(kind) for kind in owner.attributes["iterator_types"]):
        return False
    moving = ("linalg.yield", "arith.extf", "arith.extsi")
    names = [inner.operation.name for inner in owner.regions[0].blocks[0].operations]
    if any(name not in moving for name in names):
        return True
    sources = list(owner.operands)[: -len(owner.results)]
    return any(_computes(each) for each in sources)


def _nested(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _nested(inner.operation)
