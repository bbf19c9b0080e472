"""What torch-mlir lowers wrong and cannot be given otherwise: comparisons that lose a NaN, put right in its MLIR.

The second half of :mod:`torchsched.ingress.upstream`, with the same tests. Knows MLIR and no fx nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchsched.bindings import Module, bindings

__all__ = ["mend"]


def mend(module: Module) -> None:
    """Put comparisons right that lose a NaN: of clamp and its kin, of argmax, and of sort and topk."""
    text = module.operation.get_asm(large_elements_limit=8)
    if not any(each in text for each in ("cmpf u", "tm_tensor.sort", "linalg.index")):
        return
    ir = bindings("ir")
    with module.context:
        for operation in list(_comparisons(module.operation)):
            with operation.location:
                _mend(ir, operation)


def _comparisons(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                inner = each.operation
                if inner.name == "arith.cmpf":
                    yield inner
                elif len(inner.regions):
                    yield from _comparisons(inner)


_OGT, _OGE, _OLT, _OLE, _ORD, _UGT, _ULT, _UNO = 2, 3, 4, 5, 7, 9, 11, 14
"""Predicates of ``arith.cmpf``: ordered ones are false for NaN, unordered ones true."""
_ORDERED = {_UGT: _OGT, _ULT: _OLT}
_UNORDERED = {_OGT: _UGT, _OLT: _ULT}


def _mend(ir: Any, compare: Any) -> None:
    predicate = ir.IntegerAttr(compare.attributes["predicate"])
    left, right = compare.operands
    users = [use.owner.operation for use in compare.result.uses]
    around = compare.parent.name
    if predicate.value in _ORDERED and all(
        user.name == "arith.select" and list(user.operands)[1:] == [right, left] for user in users
    ):
        # clamp: a NaN would be taken for the bound.
        compare.attributes["predicate"] = ir.IntegerAttr.get(predicate.type, _ORDERED[predicate.value])
    elif around == "tm_tensor.sort" and predicate.value in (_OLE, _OGE):
        # PyTorch's order has NaN behind all numbers, and before them where it descends.
        last = right if predicate.value == _OLE else left
        with ir.InsertionPoint(users[0]):
            nan = _compared(ir, predicate.type, _UNO, last, last)
            _use_instead(ir, compare, "arith.ori", nan, users)
    elif predicate.value in (_OGT, _OLT) and _chooses_an_index(compare, users):
        # argmax and argmin: a NaN is better than any number, and the first one is the place.
        compare.attributes["predicate"] = ir.IntegerAttr.get(predicate.type, _UNORDERED[predicate.value])
        with ir.InsertionPoint(users[0]):
            number = _compared(ir, predicate.type, _ORD, right, right)
            _use_instead(ir, compare, "arith.andi", number, users)


def _chooses_an_index(compare: Any, users: list[Any]) -> bool:
    best = compare.operands[1]
    return (
        compare.parent.name == "linalg.generic"
        and all(user.name == "arith.select" and str(user.result.type)[0] == "i" for user in users)
        and any(use.owner.operation.name in _EXTREMES for use in best.uses)
    )


_EXTREMES = ("arith.maximumf", "arith.minimumf")


def _compared(ir: Any, kind: Any, predicate: int, left: Any, right: Any) -> Any:
    return ir.Operation.create(
        "arith.cmpf",
        [ir.IntegerType.get_signless(1)],
        [left, right],
        {"predicate": ir.IntegerAttr.get(kind, predicate)},
    ).result


def _use_instead(ir: Any, compare: Any, name: str, other: Any, users: list[Any]) -> None:
    both = ir.Operation.create(name, [other.type], [compare.result, other]).result
    for user in users:
        for place, operand in enumerate(user.operands):
            if operand == compare.result:
                user.operands[place] = both
