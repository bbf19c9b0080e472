"""One op's fields as an :class:`OpSpec`: every name resolved, every row complete, every expression parsed.

Owns the rules that span fields. Goes on after an error as far as it can, so that one reading finds them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType
from typing import Any

from kernelmark.errors import ManifestError
from kernelmark.files.source import Source
from kernelmark.manifest.call import Effects, RooflineDecl
from kernelmark.manifest.dtypes import DTYPE_BYTES
from kernelmark.manifest.expressions import Expression, ExpressionError, Value, constant, parse
from kernelmark.manifest.rows import RowReader, typed
from kernelmark.manifest.schema import InputModel, OpModel, OutputModel, ParamModel
from kernelmark.manifest.spec import DtypeVariable, OpSpec, ParamDecl, TensorDecl
from kernelmark.text.near import suggestion

__all__ = ["declare"]


def declare(source: Source, family: str, name: str, model: OpModel) -> tuple[OpSpec, list[ManifestError]]:
    """Give the op, and everything that is wrong with it; with an error the op must not be used."""
    return _Declaration(source, name, model).spec(family)


class _Declaration:
    """The op that is being put together, with the problems so far."""

    def __init__(self, source: Source, name: str, model: OpModel) -> None:
        self.source, self.name, self.model = source, name, model
        self.problems: list[ManifestError] = []
        self.read_names: set[str] = set()
        """Every name some expression reads."""

    def spec(self, family: str) -> tuple[OpSpec, list[ManifestError]]:
        model = self.model
        self._names_are_distinct()
        inputs = tuple(self._tensor("inputs", name, tensor) for name, tensor in model.inputs.items())
        outputs = tuple(self._tensor("outputs", name, tensor) for name, tensor in model.outputs.items())
        dims = self._dims([*inputs, *outputs])
        params = tuple(self._param(name, param) for name, param in model.params.items())
        arguments = self._arguments(dims)
        roofline = self._roofline(dims)
        self._every_dtype_is_used([*inputs, *outputs], roofline)
        rows = RowReader(self.source, self.name, inputs, outputs, params, dims, tuple(model.dtypes))
        spec = OpSpec(
            name=self.name,
            family=family,
            summary=model.summary,
            place=self.source.place(("ops", self.name)),
            dtypes=tuple(DtypeVariable(name, tuple(allowed)) for name, allowed in model.dtypes.items()),
            inputs=inputs,
            outputs=outputs,
            params=params,
            dims=dims,
            effects=self._effects(),
            arguments=MappingProxyType(arguments),
            roofline=roofline,
            rows=rows.read(model.workloads),
        )
        return spec, [*self.problems, *rows.problems]

    def _problem(self, message: str, *loc: object) -> None:
        self.problems.append(self.source.error(message, "ops", self.name, *loc))

    def _names_are_distinct(self) -> None:
        owners: dict[str, str] = dict.fromkeys(DTYPE_BYTES, "a dtype")
        for kind, names in (("dtypes", self.model.dtypes), ("params", self.model.params)):
            for name in names:
                if name in owners:
                    self._problem(f"{name!r} is already {owners[name]}; choose another name", kind, name)
                owners[name] = {"dtypes": "a dtype variable", "params": "a parameter"}[kind]
        shown = dict.fromkeys(self.model.inputs, "an input")
        for kind, names in (("outputs", self.model.outputs), ("params", self.model.params)):
            for name in names:
                if name in shown:
                    hint = (
                        " and say in effects.aliases that it is the same storage" if kind == "outputs" else ""
                    )
                    self._problem(f"{name!r} is already {shown[name]}; choose another name{hint}", kind, name)
                shown[name] = "an output"

    def _tensor(self, kind: str, name: str, model: InputModel | OutputModel) -> TensorDecl:
        if model.dtype not in self.model.dtypes and model.dtype not in DTYPE_BYTES:
            hint = suggestion(
                model.dtype, [*self.model.dtypes, *DTYPE_BYTES], there_are="dtype variables and dtypes"
            )
            self._problem(f"{model.dtype!r} is no dtype variable and no dtype; {hint}", kind, name, "dtype")
        shape = tuple(self._expression(e, kind, name, "shape", i) for i, e in enumerate(model.shape))
        for i, expression in enumerate(shape):
            for variable in [n for n in expression.names if n in self.model.dtypes or n in DTYPE_BYTES]:
                problem = f"{variable!r} is a dtype, not a size; its bytes are sizeof({variable})"
                self._problem(str(expression.error(variable, problem)), kind, name, "shape", i)
        optional = isinstance(model, InputModel) and model.optional
        return TensorDecl(name, model.dtype, shape, optional)

    def _dims(self, tensors: Iterable[TensorDecl]) -> tuple[str, ...]:
        names = (name for tensor in tensors for expression in tensor.shape for name in expression.names)
        others = {*self.model.params, *self.model.dtypes, *DTYPE_BYTES}
        return tuple(dict.fromkeys(name for name in names if name not in others))

    def _param(self, name: str, model: ParamModel) -> ParamDecl:
        choices = tuple(
            self._typed(choice, model.type, "params", name, "choices", i)
            for i, choice in enumerate(model.choices or ())
        )
        if "default" not in model.model_fields_set:
            return ParamDecl(name, model.type, None, choices)
        default = self._typed(model.default, model.type, "params", name, "default")
        if choices and default not in choices:
            self._problem(f"{default!r} is not among the choices {list(choices)}", "params", name, "default")
        return ParamDecl(name, model.type, default, choices)

    def _typed(self, value: Any, kind: str, *loc: object) -> Value:
        result, problem = typed(value, kind)
        if problem:
            self._problem(problem, *loc)
        return result

    def _effects(self) -> Effects:
        model, inputs, outputs = self.model.effects, self.model.inputs, self.model.outputs
        for field in ("mutates", "writes"):
            seen: set[str] = set()
            for i, name in enumerate(getattr(model, field)):
                self._known(name, inputs, "inputs", "effects", field, i)
                if name in seen or (field == "writes" and name in model.mutates):
                    self._problem(f"{name!r} is named twice; 'mutates' includes writing", "effects", field, i)
                seen.add(name)
        for output, target in model.aliases.items():
            self._known(output, outputs, "outputs", "effects", "aliases", output)
            self._known(target, inputs, "inputs", "effects", "aliases", output)
        if not outputs and not model.mutates and not model.writes:
            self._problem("no outputs, and no input is written: the op does nothing; declare one", "outputs")
        return Effects(tuple(model.mutates), tuple(model.writes), MappingProxyType(dict(model.aliases)))

    def _known(self, name: str, known: Collection[str], there_are: str, *loc: object) -> None:
        if name not in known:
            self._problem(
                f"{name!r} is none of the op's {there_are}; {suggestion(name, known, there_are=there_are)}",
                *loc,
            )

    def _arguments(self, dims: tuple[str, ...]) -> dict[str, Expression]:
        result: dict[str, Expression] = {}
        for name, value in self.model.arguments.items():
            if isinstance(value, bool):
                result[name] = constant(value)
            else:
                result[name] = self._expression(value, "arguments", name)
                self._reads_only(result[name], dims, "arguments", name)
        return result

    def _roofline(self, dims: tuple[str, ...]) -> RooflineDecl:
        model = self.model.roofline
        formulas: dict[str, Expression | None] = {"flops": None, "bytes": None}
        for field in formulas:
            value = getattr(model, field)
            if value is not None:
                formulas[field] = expression = self._expression(value, "roofline", field)
                self._reads_only(expression, dims, "roofline", field)
        if model.compute is not None:
            self._known_dtype(model.compute, "roofline", "compute")
        place = self.source.place(("ops", self.name, "roofline"))
        return RooflineDecl(place, formulas["flops"], formulas["bytes"], model.compute, model.function)

    def _known_dtype(self, name: str, *loc: object) -> None:
        known = [*self.model.dtypes, *DTYPE_BYTES]
        if name not in known:
            self._problem(f"{name!r} is no dtype; {suggestion(name, known, there_are='dtypes')}", *loc)

    def _expression(self, value: int | float | str, *loc: object) -> Expression:
        """Parse, and check what stands in ``sizeof`` and ``present``: they read the same names everywhere."""
        try:
            expression = parse(value)
        except ExpressionError as error:
            self._problem(error.message, *loc)
            return constant(0)
        self.read_names.update(expression.names, expression.sized)
        dtypes = [*self.model.dtypes, *DTYPE_BYTES]
        optional = [name for name, tensor in self.model.inputs.items() if tensor.optional]
        for names, known, what in (
            (expression.sized, dtypes, "dtype variables and dtypes"),
            (expression.asked, optional, "optional inputs"),
        ):
            for name in names:
                if name not in known:
                    hint = f"{name!r} is none of the {what}; {suggestion(name, known, there_are=what)}"
                    self._problem(expression.error(name, hint).message, *loc)
        return expression

    def _reads_only(self, expression: Expression, dims: tuple[str, ...], *loc: object) -> None:
        known = [*dims, *self.model.params, *self.model.dtypes]
        for name in expression.names:
            if name not in known and name not in DTYPE_BYTES:
                hint = suggestion(name, known, there_are="dimensions, parameters and dtype variables")
                self._problem(expression.error(name, f"{name!r} is not known; {hint}").message, *loc)

    def _every_dtype_is_used(self, tensors: Iterable[TensorDecl], roofline: RooflineDecl) -> None:
        used = self.read_names | {tensor.dtype for tensor in tensors} | {roofline.compute}
        for name in self.model.dtypes:
            if name not in used:
                self._problem(
                    f"dtype variable {name!r} is used by no tensor, argument or formula; remove it",
                    "dtypes",
                    name,
                )
