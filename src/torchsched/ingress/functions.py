"""Operations of kernelmark's own: imported as calls of functions that are declared at first and written later.

torch-mlir knows no such operation, but it carries a call through its passes and turns the types of its operands into
builtin ones. Then the function is written on builtin tensors, and inlined. Knows the bindings and fx nodes, and of
the operations only where their text comes from.
"""

from __future__ import annotations

from typing import Any

from torchsched.bindings import Context, Module, bindings
from torchsched.elements import Element
from torchsched.ingress.recurrent import NAMESPACE
from torchsched.ingress.recurrent_loops import function_text
from torchsched.signature import TensorType

__all__ = ["Functions"]


class Functions:
    """The functions that one import calls."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._texts: dict[str, str] = {}

    def importer_class(self) -> Any:
        """Give torch-mlir's importer of graphs, with our operations made calls."""
        functions = self

        class Importer(bindings("extras.fx_importer").GraphNodeImporter):
            def _import_torch_op_overload(self, loc: Any, node: Any, *concrete: Any) -> None:
                if getattr(node.target, "namespace", None) == NAMESPACE:
                    functions._call(self, loc, node)
                else:
                    super()._import_torch_op_overload(loc, node, *concrete)

        return Importer

    def define(self, module: Module) -> None:
        """Write in ``module`` the functions that were declared, once its types are builtin ones."""
        ir = bindings("ir")
        declared = {
            each.name.value: each
            for each in module.body.operations
            if each.operation.name == "func.func" and each.name.value in self._texts
        }
        for name, declaration in declared.items():
            declaration.erase()
            parsed = ir.Module.parse(self._texts[name], self._context)
            for function in list(parsed.body.operations):
                function.detach_from_parent()
                module.body.append(function)

    def _call(self, importer: Any, loc: Any, node: Any) -> None:
        ir, func = bindings("ir"), bindings("dialects.func")
        *tensors, reverse = node.args
        name = f"{NAMESPACE}_{node.name}"
        operation = node.target.overloadpacket.__name__.rpartition(".")[2]
        types = [_type_of(each) for each in tensors]
        self._texts[name] = function_text(operation, name, types, reverse=reverse)
        operands = [importer._import_argument(loc, each) for each in tensors]
        results = [importer._cc.value_info_to_type(each) for each in node.meta["val"]]
        with loc, ir.InsertionPoint.at_block_begin(importer.fx_importer.module.body):
            kind = ir.FunctionType.get([each.type for each in operands], results)
            func.FuncOp(name, kind, visibility="private")
        callee = {"callee": ir.FlatSymbolRefAttr.get(name, context=self._context)}
        with loc:
            call = ir.Operation.create("func.call", results, operands, attributes=callee)
        importer._multi_result_nodes.add(node)
        for index, result in enumerate(call.results):
            importer.bind_node_value(node, result, index)


def _type_of(node: Any) -> TensorType:
    value = node.meta["val"]
    return TensorType(tuple(value.shape), Element.from_torch(value.dtype))
