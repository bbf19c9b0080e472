"""An op as the manifest declares it, its workload rows, and the calls they are made into.

Everything declared is frozen; calls are built anew each time, so nothing done to one reaches the manifest. Knows no
tensor, no device, and not how a call is made or measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.errors import ManifestError
from kernelmark.files.source import Place
from kernelmark.manifest.expressions import DTYPE_BYTES, Expression, ExpressionError, Value
from kernelmark.manifest.library import import_foreign
from kernelmark.text import listing, suggestion

__all__ = [
    "Effects",
    "Manifest",
    "OpSpec",
    "ParamDecl",
    "RooflineDecl",
    "TensorDecl",
    "TensorSpec",
    "WorkCount",
    "WorkloadCall",
    "WorkloadRow",
]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of one tensor; the dtype is torch's name without ``torch.``."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


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
class Effects:
    """What a call does besides returning its outputs."""

    mutates: tuple[str, ...] = ()
    """Inputs that are read and written."""
    writes: tuple[str, ...] = ()
    """Inputs that are only written."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Output by output, the input whose storage it shares."""


class WorkCount(NamedTuple):
    """What a call has to do: operations, bytes moved, and the dtype whose rate counts."""

    flops: int
    bytes: int
    compute: str


@dataclass(frozen=True, slots=True)
class RooflineDecl:
    """The roofline as declared: two formulas, or the ``module:function`` that counts."""

    place: Place
    flops: Expression | None = None
    bytes: Expression | None = None
    compute: str | None = None
    function: str | None = None

    def count(self, call: WorkloadCall) -> WorkCount:
        """Count what ``call`` has to do; see :meth:`WorkloadCall.roofline`."""
        flops, size, compute = self._formulas(call) if self.function is None else self._called(call)
        for name, value in (("flops", flops), ("bytes", size)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise self._error(call, f"{name} is {value!r}; it must be a number, 0 or more")
        if compute is None:
            raise self._error(
                call, "the function returns a pair, so 'compute' must say which dtype's rate counts"
            )
        dtype = call.dtypes.get(compute, compute)
        if dtype not in DTYPE_BYTES:
            hint = suggestion(compute, [*call.dtypes, *DTYPE_BYTES], there_are="dtypes")
            raise self._error(call, f"compute is {compute!r}, no dtype; {hint}")
        return WorkCount(
            round(flops), round(size), dtype
        )  # half an operation, of an odd count's half, is none

    def _formulas(self, call: WorkloadCall) -> tuple[Any, Any, str | None]:
        counted: dict[str, Value | None] = {}
        for name, formula in (("flops", self.flops), ("bytes", self.bytes)):
            try:
                counted[name] = formula and formula.evaluate(call.values, call.tensors)
            except ExpressionError as error:
                raise self._error(call, f"{name}: {error}") from error
        return counted["flops"], counted["bytes"], self.compute

    def _called(self, call: WorkloadCall) -> tuple[Any, Any, str | None]:
        function = self._function()
        try:
            counted = function(call)
        except Exception as error:
            raise self._error(call, f"{self.function} raised {type(error).__name__}: {error}") from error
        match counted:
            case (flops, size):
                return flops, size, self.compute
            case object(flops=flops, bytes=size, compute=rate):
                return flops, size, self.compute or rate
        raise self._error(
            call, f"{self.function} returned {counted!r}; it must return (flops, bytes) or a Work"
        )

    def _function(self) -> Any:
        said = f"function {self.function!r}"
        module_name, _, path = str(self.function).partition(":")
        found: Any = import_foreign(module_name, lambda what: self.place.error(f"{said}: {what}"))
        for part in path.split("."):
            if not hasattr(found, part):
                hint = suggestion(part, (n for n in dir(found) if not n.startswith("_")), there_are="it has")
                raise self.place.error(f"{said}: no {part!r} in {module_name}; {hint}")
            found = getattr(found, part)
        if not callable(found):
            raise self.place.error(f"{said} is {found!r}, which cannot be called")
        return found

    def _error(self, call: WorkloadCall, message: str) -> ManifestError:
        return self.place.error(f"{message} (call {call.id})")


@dataclass(frozen=True, slots=True)
class WorkloadCall:
    """One call of one op: a row with one of its dtype cases, every shape a tuple of numbers."""

    op: str
    id: str
    """``<op>-<label>-<dtypes>``: unique in the manifest, and the same as long as these three are."""
    label: str
    source: str
    """The real model that makes this call."""
    dtypes: dict[str, str]
    """Dtype by dtype variable."""
    dims: dict[str, int]
    params: dict[str, Any]
    """Defaults included."""
    signature: tuple[str, ...]
    """Every input's name, in the order of the call."""
    tensors: dict[str, TensorSpec]
    """The inputs of this call in that order; for an optional one that is not here, ``None`` is passed."""
    outputs: dict[str, TensorSpec]
    arguments: dict[str, Any]
    """Keyword arguments for the op's constructor; dtypes are names."""
    effects: Effects
    declared_roofline: RooflineDecl = field(repr=False)

    @property
    def values(self) -> dict[str, Value]:
        """What each name of the manifest's arithmetic stands for in this call."""
        return {**self.dims, **self.params, **self.dtypes}

    def roofline(self) -> WorkCount:
        """Count the operations and bytes of the call.

        Raises:
            ManifestError: a formula has no value here, or the function is missing, raises, or returns
                something else.
            UnavailableError: the function's module needs something that is not installed.
        """
        return self.declared_roofline.count(self)

    def tensor_params(self) -> dict[str, Any]:
        """Give every tensor's shape and dtype as text, then the parameters: what a report shows of a call."""
        tensors = {name: str(spec) for name, spec in (self.tensors | self.outputs).items()}
        return {**tensors, **self.params}


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
    dtypes: Mapping[str, tuple[str, ...]]
    """The dtypes that each dtype variable may stand for."""
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
        calls = []
        for row, case in self.cases():
            for problem in self.dtype_problems(row, case):
                raise problem
            calls.append(self.instantiate(row, case))
        return tuple(calls)

    def cases(self) -> Iterator[tuple[WorkloadRow, Mapping[str, str]]]:
        """Give each row with each of its dtype cases, not yet made into a call."""
        return ((row, case) for row in self.rows for case in row.cases)

    def dtype_problems(self, row: WorkloadRow, case: Mapping[str, str]) -> list[ManifestError]:
        """Give an error for each variable that ``case`` binds to a dtype the op does not take."""
        return [
            row.place.error(
                f"{name} is {case[name]} in a dtype case of {row.label!r}; {self.name} takes {listing(allowed)}"
            )
            for name, allowed in self.dtypes.items()
            if case[name] not in allowed
        ]

    def call_id(self, row: WorkloadRow, case: Mapping[str, str]) -> str:
        """Give the id of a call; no part of it depends on other rows, so ids stay when rows come and go."""
        return "-".join((self.name, row.label, *(case[name] for name in self.dtypes)))

    def instantiate(self, row: WorkloadRow, case: Mapping[str, str]) -> WorkloadCall:
        """Make one call, without asking whether the op takes these dtypes.

        Raises:
            ManifestError: a shape or constructor argument has no value in this row.
        """
        inputs = [decl for decl in self.inputs if not decl.optional or decl.name in row.given]
        binding = _Binding(row, {**row.dims, **row.params, **case}, frozenset(decl.name for decl in inputs))
        return WorkloadCall(
            op=self.name,
            id=self.call_id(row, case),
            label=row.label,
            source=row.source,
            dtypes={name: case[name] for name in self.dtypes},
            dims=dict(row.dims),
            params=dict(row.params),
            signature=tuple(decl.name for decl in self.inputs),
            tensors={decl.name: binding.tensor("inputs", decl) for decl in inputs},
            outputs={decl.name: binding.tensor("outputs", decl) for decl in self.outputs},
            arguments={name: binding.value(f"arguments.{name}", e) for name, e in self.arguments.items()},
            effects=Effects(self.effects.mutates, self.effects.writes, dict(self.effects.aliases)),
            declared_roofline=self.roofline,
        )


@dataclass(frozen=True, slots=True)
class _Binding:
    """The names of one row with one dtype case, and what the declarations come to under them."""

    row: WorkloadRow
    values: Mapping[str, Value]
    present: frozenset[str]

    def tensor(self, kind: str, decl: TensorDecl) -> TensorSpec:
        shape = tuple(self._size(f"{kind}.{decl.name}.shape.{i}", e) for i, e in enumerate(decl.shape))
        return TensorSpec(shape, str(self.values.get(decl.dtype, decl.dtype)))

    def _size(self, what: str, expression: Expression) -> int:
        value = self.value(what, expression)
        if type(value) is int and value >= 0:
            return value
        hint = "; write // for whole numbers" if isinstance(value, float) and math.isfinite(value) else ""
        raise self._error(f"{what} ({expression.text}) is {value!r}; a size is an int, 0 or more{hint}")

    def value(self, what: str, expression: Expression) -> Value:
        try:
            return expression.evaluate(self.values, self.present)
        except ExpressionError as error:
            raise self._error(f"{what}: {error}") from error

    def _error(self, message: str) -> ManifestError:
        bound = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return self.row.place.error(f"{message} (in row {self.row.label!r}: {bound})")


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
