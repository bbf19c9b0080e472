"""Workload rows: each binds every name its op needs, once, to a value of the right type.

Knows nothing of arithmetic: what the bound names come to is found when the row is made into a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kernelmark.errors import ManifestError
from kernelmark.files.source import Source, kind_of
from kernelmark.manifest.expressions import Value
from kernelmark.manifest.schema import WorkloadModel
from kernelmark.manifest.spec import ParamDecl, TensorDecl, WorkloadRow
from kernelmark.text.near import listing, suggestion

__all__ = ["RowReader", "typed"]

_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def typed(value: Any, kind: str) -> tuple[Value, str | None]:
    """Give ``value`` as parameter type ``kind``, and what is wrong with it; an int will do for a float."""
    if kind == "float" and type(value) is int:
        return float(value), None
    if type(value) is _TYPES[kind]:
        return value, None
    hint = ""
    if kind == "str":
        hint = f'; quote it: "{str(value).lower() if isinstance(value, bool) else value}"'
    elif kind == "bool" and isinstance(value, str):
        hint = "; write true or false, unquoted"
    return value, f"expected {kind}, got {kind_of(value)} {value!r}{hint}"


@dataclass(slots=True)
class RowReader:
    """Reads one op's rows; :attr:`problems` holds what is wrong with them."""

    source: Source
    op: str
    inputs: tuple[TensorDecl, ...]
    outputs: tuple[TensorDecl, ...]
    params: tuple[ParamDecl, ...]
    dims: tuple[str, ...]
    variables: tuple[str, ...]
    problems: list[ManifestError] = field(default_factory=list)

    def read(self, models: Sequence[WorkloadModel]) -> tuple[WorkloadRow, ...]:
        """Give the rows, in order; those with a problem are not to be used."""
        first_with: dict[str, int] = {}
        for i, model in enumerate(models):
            if model.label in first_with:
                line = self.source.place(("ops", self.op, "workloads", first_with[model.label])).line
                self._problem(
                    f"label {model.label!r} is taken by the row on line {line}; ids must differ", i, "label"
                )
            first_with.setdefault(model.label, i)
        return tuple(self._row(i, model) for i, model in enumerate(models))

    def _row(self, i: int, model: WorkloadModel) -> WorkloadRow:
        self._given(i, model)
        self._dims(i, model)
        self._cases(i, model)
        return WorkloadRow(
            label=model.label,
            source=model.source,
            place=self.source.place(("ops", self.op, "workloads", i)),
            dims=MappingProxyType({name: model.dims[name] for name in self.dims if name in model.dims}),
            params=MappingProxyType(self._params(i, model)),
            cases=tuple(MappingProxyType(dict(case)) for case in model.dtypes),
            given=tuple(model.given),
        )

    def _given(self, i: int, model: WorkloadModel) -> None:
        optional = [tensor.name for tensor in self.inputs if tensor.optional]
        for j, name in enumerate(model.given):
            if name not in optional:
                hint = suggestion(name, optional, there_are="optional inputs")
                self._problem(f"{name!r} is no optional input; {hint}", i, "with", j)
            elif name in model.given[:j]:
                self._problem(f"{name!r} is given twice", i, "with", j)

    def _dims(self, i: int, model: WorkloadModel) -> None:
        for name in model.dims:
            if name not in self.dims:
                hint = suggestion(name, self.dims, there_are="dimensions")
                if name in (param.name for param in self.params):
                    hint = "it is a parameter, so it goes under 'params'"
                self._problem(f"{name!r} is in no tensor's shape; {hint}", i, "dims", name)
        present = [t for t in (*self.inputs, *self.outputs) if not t.optional or t.name in model.given]
        for name in self.dims:
            users = [t.name for t in present if any(name in expression.names for expression in t.shape)]
            if users and name not in model.dims:
                self._problem(
                    f"dimension {name!r} has no size; it is in the shape of {listing(users)}", i, "dims"
                )

    def _cases(self, i: int, model: WorkloadModel) -> None:
        for j, case in enumerate(model.dtypes):
            for name in case:
                if name not in self.variables:
                    hint = suggestion(name, self.variables, there_are="dtype variables")
                    self._problem(f"{name!r} is no dtype variable; {hint}", i, "dtypes", j, name)
            missing = [name for name in self.variables if name not in case]
            if missing:
                self._problem(f"dtype variable {listing(missing)} has no dtype in this case", i, "dtypes", j)
            if case in model.dtypes[:j]:
                self._problem("this dtype case is in the row already; ids must differ", i, "dtypes", j)

    def _params(self, i: int, model: WorkloadModel) -> dict[str, Value]:
        for name in model.params:
            if name not in (param.name for param in self.params):
                hint = suggestion(name, (param.name for param in self.params), there_are="parameters")
                self._problem(f"{name!r} is no parameter; {hint}", i, "params", name)
        result: dict[str, Value] = {}
        for param in self.params:
            if param.name in model.params:
                result[param.name] = self._param(param, model.params, i)
            elif param.default is not None:
                result[param.name] = param.default
            else:
                self._problem(
                    f"parameter {param.name!r} has no default, so the row must give it", i, "params"
                )
        return result

    def _param(self, param: ParamDecl, given: Mapping[str, Any], i: int) -> Value:
        value, problem = typed(given[param.name], param.type)
        if problem is None and param.choices and value not in param.choices:
            problem = f"{value!r} is not among the choices {listing(map(repr, param.choices))}"
        if problem:
            self._problem(problem, i, "params", param.name)
        return value

    def _problem(self, message: str, i: int, *loc: object) -> None:
        self.problems.append(self.source.error(message, "ops", self.op, "workloads", i, *loc))
