"""Turns what ``main`` returns into arguments that it writes, while the module is still on tensors.

Knows the function's form and nothing of what computes the results.
"""

from __future__ import annotations

from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.failures import Stage, failure
from torchsched.in_place import record
from torchsched.signature import Signature

__all__ = ["ENTRY", "entry_of", "results_to_arguments", "unread_arguments"]

ENTRY = "main"
"""The function that a model is imported as, and that is called as ``_mlir_ciface_main``."""


def results_to_arguments(module: Module, signature: Signature) -> None:
    """Give ``main`` one destination argument per result, after the others, and let it return nothing.

    A destination is a contiguous memref; bufferisation computes into it where it can, and copies where the result
    is an argument, a constant, or a result that another destination has already got. A destination must not
    share memory with an argument or with another destination. Where the result is an argument's new value, the
    caller copies it over after the call, unless :mod:`torchsched.in_place` says that the two may be one.
    ``main`` gets ``llvm.emit_c_interface``.

    Raises:
        ModelLoweringError: the module has no ``main`` of this signature.
    """
    ir, bufferization = bindings("ir"), bindings("dialects.bufferization")
    function = entry_of(module)
    inputs, results = list(function.type.inputs), list(function.type.results)
    with module.context, ir.Location.unknown(module.context):
        _require(inputs, [argument.type.mlir for argument in signature.arguments], "arguments")
        _require(results, [result.type.mlir for result in signature.results], "results")
        block = function.regions[0].blocks[0]
        ret = block.operations[len(block.operations) - 1]
        destinations = [ir.Type.parse(result.type.memref) for result in signature.results]
        place = function.operation.location
        arguments = [block.add_argument(destination, place) for destination in destinations]
        with ir.InsertionPoint(ret):
            for value, argument in zip(list(ret.operands), arguments, strict=True):
                bufferization.materialize_in_destination(None, value, argument, restrict=True, writable=True)
            ir.Operation.create("func.return")
        ret.erase()
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs + destinations, []))
        function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]
        # An argument is the caller's: what is computed from it goes elsewhere, also where the graph writes it a new
        # value, which is copied there after the call.
        kept = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [kept] * len(inputs) + [ir.DictAttr.get({})] * len(destinations)
        )
    own = len(signature.arguments)
    record(
        module,
        [
            (signature.index_of(result.writes), own + place)
            for place, result in enumerate(signature.results)
            if result.writes is not None
        ],
    )
    module.operation.verify()


def unread_arguments(module: Module) -> frozenset[int]:
    """Give the positions of the arguments of ``main`` that nothing in it uses.

    Raises:
        ModelLoweringError: the module has no ``main``.
    """
    block = entry_of(module).regions[0].blocks[0]
    return frozenset(place for place, each in enumerate(block.arguments) if not list(each.uses))


def entry_of(module: Module) -> Operation:
    """Give the function ``main``.

    Raises:
        ModelLoweringError: the module has none.
    """
    for operation in module.body.operations:
        if operation.operation.name == "func.func" and operation.name.value == ENTRY:
            return operation
    raise failure(Stage.LOWER, f"the module has no function {ENTRY!r}")


def _require(found: list[Any], wanted: list[str], what: str) -> None:
    if [str(each) for each in found] != wanted:
        raise failure(
            Stage.LOWER,
            f"{ENTRY} has the {what} ({', '.join(map(str, found))}), and its signature says ({', '.join(wanted)});"
            " a step before this one changed the function's type",
        )
