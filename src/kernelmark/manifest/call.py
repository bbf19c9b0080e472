"""One workload call: a row of the manifest with one of its dtype cases, every shape a tuple of numbers.

Holds numbers and names only. Knows no tensor, no device, and not how the call is made or measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernelmark.errors import ManifestError
from kernelmark.files.source import Place
from kernelmark.manifest.dtypes import DTYPE_BYTES
from kernelmark.manifest.expressions import Expression, ExpressionError, Value
from kernelmark.manifest.foreign import import_foreign
from kernelmark.text.near import suggestion

__all__ = ["Effects", "RooflineDecl", "RooflineSpec", "TensorSpec", "WorkCount", "WorkloadCall"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of one tensor; the dtype is torch's name without ``torch.``."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call does besides returning its outputs.

    Attributes:
        mutates: Inputs that are read and written.
        writes: Inputs that are only written.
        aliases: Output by output, the input whose storage it shares.
    """

    mutates: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class WorkloadCall:
    """One call of one op.

    Attributes:
        id: ``<op>-<label>-<dtypes>``: unique in the manifest, and the same as long as these three are.
        source: The real model that makes this call.
        dtypes: Dtype by dtype variable.
        dims: Size by dimension name.
        params: Value by parameter, defaults included.
        signature: Every input's name, in the order of the call.
        tensors: The inputs of this call in that order. An optional one that the row does not give is not
            here, and ``None`` is passed in its place.
        outputs: The outputs, in order.
        arguments: Keyword arguments for the op's constructor; dtypes are names.
    """

    op: str
    id: str
    label: str
    source: str
    dtypes: dict[str, str]
    dims: dict[str, int]
    params: dict[str, Any]
    signature: tuple[str, ...]
    tensors: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    arguments: dict[str, Any]
    effects: Effects
    declared_roofline: RooflineDecl = field(repr=False)

    @property
    def values(self) -> dict[str, Value]:
        """What each name of the manifest's arithmetic stands for in this call."""
        return {**self.dims, **self.params, **self.dtypes}

    @property
    def roofline(self) -> RooflineSpec:
        """The roofline of this call; call it for the numbers."""
        return RooflineSpec(self.declared_roofline, self)

    def tensor_params(self) -> dict[str, Any]:
        """Give every tensor's shape and dtype as text, then the parameters: what a report shows of a call."""
        tensors = {name: str(spec) for name, spec in (self.tensors | self.outputs).items()}
        return {**tensors, **self.params}


@dataclass(frozen=True, slots=True)
class RooflineSpec:
    """A declared roofline with the call it is asked for."""

    declared: RooflineDecl
    call: WorkloadCall

    def __call__(self) -> WorkCount:
        """Count the operations and bytes of the call.

        Raises:
            ManifestError: a formula has no value here, or the function is missing, raises, or returns
                something else.
            UnavailableError: the function's module needs something that is not installed.
        """
        if self.declared.function is not None:
            return self._from_function(self.declared.function)
        return WorkCount(
            self._count("flops", self._formula("flops", self.declared.flops)),
            self._count("bytes", self._formula("bytes", self.declared.bytes)),
            self._compute(self.declared.compute),
        )

    def _formula(self, name: str, formula: Expression | None) -> object:
        try:
            return formula.evaluate(self.call.values, self.call.tensors) if formula else None
        except ExpressionError as error:
            raise self._error(f"{name}: {error}") from error

    def _from_function(self, reference: str) -> WorkCount:
        function = _resolve(reference, self.declared.place)
        try:
            counted = function(self.call)
        except Exception as error:
            raise self._error(f"{reference} raised {type(error).__name__}: {error}") from error
        compute = self.declared.compute
        match counted:
            case (flops, size):
                pass
            case object(flops=flops, bytes=size, compute=rate):
                compute = compute or rate
            case _:
                raise self._error(
                    f"{reference} returned {counted!r}; it must return (flops, bytes) or a Work"
                )
        return WorkCount(self._count("flops", flops), self._count("bytes", size), self._compute(compute))

    def _count(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self._error(f"{name} is {value!r}; it must be a number, 0 or more")
        return round(value)  # a causal half of an odd count: half an operation is none

    def _compute(self, name: str | None) -> str:
        dtype = self.call.dtypes.get(name, name) if name is not None else None
        if dtype in DTYPE_BYTES:
            return dtype
        if dtype is None:
            raise self._error("the function returns a pair, so 'compute' must say which dtype's rate counts")
        known = [*self.call.dtypes, *DTYPE_BYTES]
        raise self._error(
            f"compute is {name!r}, no dtype; {suggestion(name or '', known, there_are='dtypes')}"
        )

    def _error(self, message: str) -> ManifestError:
        return self.declared.place.error(f"{message} (call {self.call.id})")


def _resolve(reference: str, place: Place) -> Any:
    module_name, _, path = reference.partition(":")
    found: Any = import_foreign(module_name, lambda what: place.error(f"function {reference!r}: {what}"))
    for part in path.split("."):
        if not hasattr(found, part):
            hint = suggestion(part, (n for n in dir(found) if not n.startswith("_")), there_are="it has")
            raise place.error(f"function {reference!r}: no {part!r} in {module_name}; {hint}")
        found = getattr(found, part)
    if not callable(found):
        raise place.error(f"function {reference!r} is {found!r}, which cannot be called")
    return found
