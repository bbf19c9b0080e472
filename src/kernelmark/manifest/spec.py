"""An op as the manifest declares it, and its workload rows made into calls.

Everything is frozen; calls are built anew each time, so nothing done to one reaches the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.errors import ManifestError
from kernelmark.files.source import Place
from kernelmark.manifest.call import Effects, RooflineDecl, TensorSpec, WorkloadCall
from kernelmark.manifest.expressions import Expression, ExpressionError, Value
from kernelmark.text.near import listing, suggestion

__all__ = ["DtypeVariable", "Manifest", "OpSpec", "ParamDecl", "TensorDecl", "WorkloadRow"]


@dataclass(frozen=True, slots=True)
class DtypeVariable:
    """A dtype variable and the dtypes it may stand for."""

    name: str
    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """A tensor as declared: its dtype is a variable or a dtype, its shape arithmetic."""

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """A parameter; ``default`` is ``None`` where each row must give it."""

    name: str
    type: str
    default: Value | None = None
    choices: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload row: the names it binds, and its dtype cases."""

    label: str
    source: str
    place: Place
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    """The op's defaults included."""
    cases: tuple[Mapping[str, str], ...]
    given: tuple[str, ...] = ()
    """The optional inputs that the row gives."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op of the manifest."""

    name: str
    family: str
    summary: str
    place: Place
    dtypes: tuple[DtypeVariable, ...]
    inputs: tuple[TensorDecl, ...]
    outputs: tuple[TensorDecl, ...]
    params: tuple[ParamDecl, ...]
    dims: tuple[str, ...]
    """The dimension names: those in shapes that are no parameters."""
    effects: Effects
    arguments: Mapping[str, Expression]
    roofline: RooflineDecl
    rows: tuple[WorkloadRow, ...]

    def calls(self) -> tuple[WorkloadCall, ...]:
        """Make every call: one per dtype case per row, in the order of the file.

        Raises:
            ManifestError: a case has a dtype that the op does not take, or a shape has no value.
        """
        return tuple(self._checked_call(row, case) for row, case in self.cases())

    def cases(self) -> Iterator[tuple[WorkloadRow, Mapping[str, str]]]:
        """Give each row with each of its dtype cases, not yet made into a call."""
        return ((row, case) for row in self.rows for case in row.cases)

    def _checked_call(self, row: WorkloadRow, case: Mapping[str, str]) -> WorkloadCall:
        for problem in self.dtype_problems(row, case):
            raise problem
        return self.instantiate(row, case)

    def dtype_problems(self, row: WorkloadRow, case: Mapping[str, str]) -> list[ManifestError]:
        """Give an error for each variable that ``case`` binds to a dtype the op does not take."""
        return [
            row.place.error(
                f"{variable.name} is {case[variable.name]} in a dtype case of {row.label!r};"
                f" {self.name} takes {listing(variable.allowed)}"
            )
            for variable in self.dtypes
            if case[variable.name] not in variable.allowed
        ]

    def call_id(self, row: WorkloadRow, case: Mapping[str, str]) -> str:
        """Give the id of a call; no part of it depends on other rows, so ids stay when rows come and go."""
        return "-".join((self.name, row.label, *(case[variable.name] for variable in self.dtypes)))

    def instantiate(self, row: WorkloadRow, case: Mapping[str, str]) -> WorkloadCall:
        """Make one call, without asking whether the op takes these dtypes.

        Raises:
            ManifestError: a shape or constructor argument has no value in this row.
        """
        binding = _Binding(row, {**row.dims, **row.params, **case}, self._present(row))
        return WorkloadCall(
            op=self.name,
            id=self.call_id(row, case),
            label=row.label,
            source=row.source,
            dtypes={variable.name: case[variable.name] for variable in self.dtypes},
            dims=dict(row.dims),
            params=dict(row.params),
            signature=tuple(decl.name for decl in self.inputs),
            tensors={d.name: binding.tensor("inputs", d) for d in self.inputs if d.name in binding.present},
            outputs={d.name: binding.tensor("outputs", d) for d in self.outputs},
            arguments={name: binding.argument(name, value) for name, value in self.arguments.items()},
            effects=Effects(self.effects.mutates, self.effects.writes, dict(self.effects.aliases)),
            declared_roofline=self.roofline,
        )

    def _present(self, row: WorkloadRow) -> frozenset[str]:
        return frozenset(d.name for d in self.inputs if not d.optional or d.name in row.given)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All ops of a manifest folder, in order: by file name, then as they stand in the file."""

    folder: Path
    ops: Mapping[str, OpSpec]
    files: tuple[Path, ...]

    def op(self, name: str) -> OpSpec:
        """Give the op called ``name``.

        Raises:
            ManifestError: there is none; the message lists near names.
        """
        if name in self.ops:
            return self.ops[name]
        hint = suggestion(name, self.ops, there_are="ops")
        raise ManifestError(f"no op {name!r} in this manifest; {hint}", path=str(self.folder))

    def calls(self) -> tuple[WorkloadCall, ...]:
        """Make every call of every op, in manifest order."""
        return tuple(call for spec in self.ops.values() for call in spec.calls())


@dataclass(frozen=True, slots=True)
class _Binding:
    """The names of one row with one dtype case, and what the declarations come to under them."""

    row: WorkloadRow
    values: Mapping[str, Value]
    present: frozenset[str]

    def tensor(self, kind: str, decl: TensorDecl) -> TensorSpec:
        shape = tuple(self._size(f"{kind}.{decl.name}.shape.{i}", e) for i, e in enumerate(decl.shape))
        return TensorSpec(shape, str(self.values.get(decl.dtype, decl.dtype)))

    def argument(self, name: str, expression: Expression) -> Any:
        return self._value(f"arguments.{name}", expression)

    def _size(self, what: str, expression: Expression) -> int:
        value = self._value(what, expression)
        if type(value) is int and value >= 0:
            return value
        hint = "; write // for whole numbers" if isinstance(value, float) and math.isfinite(value) else ""
        raise self._error(f"{what} ({expression.text}) is {value!r}; a size is an int, 0 or more{hint}")

    def _value(self, what: str, expression: Expression) -> Value:
        try:
            return expression.evaluate(self.values, self.present)
        except ExpressionError as error:
            raise self._error(f"{what}: {error}") from error

    def _error(self, message: str) -> ManifestError:
        bound = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return self.row.place.error(f"{message} (in row {self.row.label!r}: {bound})")
