"""A manifest folder as a :class:`Manifest`: every name resolved, every row complete, every expression parsed.

Owns the rules that span fields, rows and files. Goes on after an error as far as it can, so that one reading finds
them all. What an expression comes to is found when a row is made into a call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernelmark.errors import ManifestError
from kernelmark.files.source import Place, Source, kind_of, read_source
from kernelmark.manifest import schema
from kernelmark.manifest.expressions import DTYPE_BYTES, Expression, ExpressionError, Value, constant, parse
from kernelmark.manifest.op import (
    Effects,
    Manifest,
    OpSpec,
    ParamDecl,
    RooflineDecl,
    TensorDecl,
    WorkloadRow,
)
from kernelmark.text import listing, suggestion

__all__ = ["load_manifest", "read_manifest"]

_SHOWN = 20  # more errors than that are one error with many victims
_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def load_manifest(folder: Path | str) -> Manifest:
    """Read every YAML file of ``folder``.

    Raises:
        ManifestError: something is wrong; the place is the first problem's, the text lists the others.
    """
    manifest, problems = read_manifest(folder)
    if not problems:
        return manifest
    first, *others = problems
    if not others:
        raise first
    lines = [first.message, *map(str, others[:_SHOWN])]
    if len(others) > _SHOWN:
        lines.append(f"and {len(others) - _SHOWN} more")
    raise ManifestError("\n".join(lines), path=first.path, line=first.line, field=first.field)


def read_manifest(folder: Path | str) -> tuple[Manifest, list[ManifestError]]:
    """Read every YAML file of ``folder``; give the manifest and everything that is wrong with it.

    With a problem the manifest holds the ops of the files that have none.
    """
    folder = Path(folder)
    ops: dict[str, OpSpec] = {}
    families: dict[str, Place] = {}
    problems: list[ManifestError] = []
    files: list[Path] = []
    try:
        files = _files(folder)
    except ManifestError as error:
        problems.append(error)
    for file in files:
        try:
            source = read_source(file)
        except ManifestError as error:
            problems.append(error)
            continue
        model, found = schema.read_schema(source)
        if model is not None:
            readers = [_Op(source, model.family, name, op) for name, op in model.ops.items()]
            specs = [reader.spec() for reader in readers]
            found += [problem for reader in readers for problem in reader.problems]
            if taken := families.get(model.family):
                found.append(
                    source.error(_taken("family", model.family, taken, "one file per family"), "family")
                )
            for spec in specs:
                if spec.name in ops:
                    said = _taken("op", spec.name, ops[spec.name].place, "an op has one place")
                    found.append(spec.place.error(said))
            families.setdefault(model.family, source.place(("family",)))
            ops |= {} if found else {spec.name: spec for spec in specs}
        problems += found
    return Manifest(folder, MappingProxyType(ops), tuple(files)), problems


def _taken(kind: str, name: str, place: Place, rule: str) -> str:
    return f"{kind} {name!r} is already declared in {place.path}:{place.line}; {rule}"


def _files(folder: Path) -> list[Path]:
    problem = "the folder holds no .yaml file; a manifest has one per family"
    if not folder.exists():
        problem = "there is no such folder; name the folder of the manifest"
    elif not folder.is_dir():
        problem = "this is a file; name the folder that holds the manifest's files"
    else:
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            raise ManifestError(f"cannot be listed: {error.strerror}", path=str(folder)) from error
        if files := [e for e in entries if e.suffix in (".yaml", ".yml") and not e.name.startswith(".")]:
            return files
    raise ManifestError(problem, path=str(folder))


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


class _Op:
    """One op that is being put together, with the problems so far; with one, it must not be used."""

    def __init__(self, source: Source, family: str, name: str, model: schema.OpModel) -> None:
        self.source, self.family, self.name, self.model = source, family, name, model
        self.problems: list[ManifestError] = []
        self.read_names: set[str] = set()
        """Every name some expression reads."""
        self.dtypes = (*model.dtypes, *DTYPE_BYTES)
        self._names_are_distinct()
        self.inputs = tuple(self._tensor("inputs", *item) for item in model.inputs.items())
        self.outputs = tuple(self._tensor("outputs", *item) for item in model.outputs.items())
        self.tensors = (*self.inputs, *self.outputs)
        names = (name for tensor in self.tensors for size in tensor.shape for name in size.names)
        self.dims = tuple(dict.fromkeys(n for n in names if n not in (*model.params, *self.dtypes)))
        self.params = tuple(self._param(name, param) for name, param in model.params.items())

    def spec(self) -> OpSpec:
        model = self.model
        arguments = {
            name: constant(value) if isinstance(value, bool) else self._formula(value, "arguments", name)
            for name, value in model.arguments.items()
        }
        roofline = self._roofline()
        used = self.read_names | {tensor.dtype for tensor in self.tensors} | {roofline.compute}
        for name in model.dtypes:
            if name not in used:
                problem = f"dtype variable {name!r} is used by no tensor, argument or formula; remove it"
                self._problem(problem, "dtypes", name)
        return OpSpec(
            name=self.name,
            family=self.family,
            summary=model.summary,
            place=self.source.place(("ops", self.name)),
            dtypes=MappingProxyType({name: tuple(allowed) for name, allowed in model.dtypes.items()}),
            inputs=self.inputs,
            outputs=self.outputs,
            params=self.params,
            dims=self.dims,
            effects=self._effects(),
            arguments=MappingProxyType(arguments),
            roofline=roofline,
            rows=self._rows(),
        )

    def _problem(self, message: str, *loc: object) -> None:
        self.problems.append(self.source.error(message, "ops", self.name, *loc))

    def _known(self, name: str, known: Collection[str], what: str, *loc: object, is_no: str = "") -> None:
        """Note it where ``name`` is none of the ``known``, which are called ``what``."""
        if name not in known:
            said = f"is no {is_no}" if is_no else f"is none of the op's {what}"
            self._problem(f"{name!r} {said}; {suggestion(name, known, there_are=what)}", *loc)

    def _names_are_distinct(self) -> None:
        model = self.model
        spaces = (
            (("dtypes", model.dtypes, "a dtype variable"), ("params", model.params, "a parameter")),
            (("outputs", model.outputs, "an output"), ("params", model.params, "a parameter")),
        )
        taken = (dict.fromkeys(DTYPE_BYTES, "a dtype"), dict.fromkeys(model.inputs, "an input"))
        for owners, kinds in zip(taken, spaces, strict=True):
            for kind, names, word in kinds:
                for name in names:
                    if name in owners:
                        same = " and say in effects.aliases that it is the same storage"
                        hint = same if kind == "outputs" else ""
                        said = f"{name!r} is already {owners[name]}; choose another name{hint}"
                        self._problem(said, kind, name)
                    owners[name] = word

    # --- declarations

    def _tensor(self, kind: str, name: str, model: schema.TensorModel) -> TensorDecl:
        what = "dtype variables and dtypes"
        self._known(model.dtype, self.dtypes, what, kind, name, "dtype", is_no="dtype variable and no dtype")
        shape = tuple(self._expression(e, kind, name, "shape", i) for i, e in enumerate(model.shape))
        for i, expression in enumerate(shape):
            for variable in expression.names:
                if variable in self.dtypes:
                    problem = f"{variable!r} is a dtype, not a size; its bytes are sizeof({variable})"
                    self._problem(str(expression.error(variable, problem)), kind, name, "shape", i)
        return TensorDecl(name, model.dtype, shape, isinstance(model, schema.InputModel) and model.optional)

    def _param(self, name: str, model: schema.ParamModel) -> ParamDecl:
        loc = ("params", name)
        choices = tuple(
            self._typed(choice, model.type, *loc, "choices", i)
            for i, choice in enumerate(model.choices or ())
        )
        if "default" not in model.model_fields_set:
            return ParamDecl(name, model.type, None, choices)
        default = self._typed(model.default, model.type, *loc, "default")
        if choices and default not in choices:
            self._problem(f"{default!r} is not among the choices {list(choices)}", *loc, "default")
        return ParamDecl(name, model.type, default, choices)

    def _typed(self, value: Any, kind: str, *loc: object) -> Value:
        result, problem = typed(value, kind)
        if problem:
            self._problem(problem, *loc)
        return result

    def _effects(self) -> Effects:
        model, inputs, outputs = self.model.effects, self.model.inputs, self.model.outputs
        for field, earlier in (("mutates", []), ("writes", model.mutates)):
            names = getattr(model, field)
            for i, name in enumerate(names):
                self._known(name, inputs, "inputs", "effects", field, i)
                if name in (*earlier, *names[:i]):
                    self._problem(f"{name!r} is named twice; 'mutates' includes writing", "effects", field, i)
        for output, target in model.aliases.items():
            self._known(output, outputs, "outputs", "effects", "aliases", output)
            self._known(target, inputs, "inputs", "effects", "aliases", output)
        if not outputs and not model.mutates and not model.writes:
            self._problem("no outputs, and no input is written: the op does nothing; declare one", "outputs")
        return Effects(tuple(model.mutates), tuple(model.writes), MappingProxyType(dict(model.aliases)))

    def _roofline(self) -> RooflineDecl:
        model = self.model.roofline
        formulas = {
            field: None if value is None else self._formula(value, "roofline", field)
            for field, value in (("flops", model.flops), ("bytes", model.bytes))
        }
        if model.compute is not None:
            self._known(model.compute, self.dtypes, "dtypes", "roofline", "compute", is_no="dtype")
        place = self.source.place(("ops", self.name, "roofline"))
        return RooflineDecl(place, **formulas, compute=model.compute, function=model.function)

    def _expression(self, value: int | float | str, *loc: object) -> Expression:
        """Parse, and check what stands in ``sizeof`` and ``present``: they read the same names everywhere."""
        try:
            expression = parse(value)
        except ExpressionError as error:
            self._problem(error.message, *loc)
            return constant(0)
        self.read_names.update(expression.names, expression.sized)
        optional = [name for name, tensor in self.model.inputs.items() if tensor.optional]
        self._reads(expression, expression.sized, self.dtypes, "dtype variables and dtypes", *loc)
        self._reads(expression, expression.asked, optional, "optional inputs", *loc)
        return expression

    def _formula(self, value: int | float | str, *loc: object) -> Expression:
        """Parse what may read dimensions, parameters and dtypes, once the dimensions are known."""
        expression = self._expression(value, *loc)
        names = [name for name in expression.names if name not in DTYPE_BYTES]
        known = (*self.dims, *self.model.params, *self.model.dtypes)
        self._reads(expression, names, known, "dimensions, parameters and dtype variables", *loc)
        return expression

    def _reads(
        self, expression: Expression, names: Iterable[str], known: Collection[str], what: str, *loc: object
    ) -> None:
        for name in names:
            if name not in known:
                said = f"{name!r} is not known; {suggestion(name, known, there_are=what)}"
                self._problem(expression.error(name, said).message, *loc)

    # --- workload rows: each binds every name its op needs, once, to a value of the right type

    def _rows(self) -> tuple[WorkloadRow, ...]:
        labels = [row.label for row in self.model.workloads]
        for i, label in enumerate(labels):
            if (first := labels.index(label)) < i:
                line = self.source.place(("ops", self.name, "workloads", first)).line
                said = f"label {label!r} is taken by the row on line {line}; ids must differ"
                self._problem(said, "workloads", i, "label")
        return tuple(self._row(("workloads", i), row) for i, row in enumerate(self.model.workloads))

    def _row(self, loc: tuple[object, ...], row: schema.WorkloadModel) -> WorkloadRow:
        optional = [tensor.name for tensor in self.inputs if tensor.optional]
        for j, name in enumerate(row.given):
            self._known(name, optional, "optional inputs", *loc, "with", j, is_no="optional input")
            if name in optional and name in row.given[:j]:
                self._problem(f"{name!r} is given twice", *loc, "with", j)
        self._row_dims(loc, row)
        self._row_cases(loc, row)
        return WorkloadRow(
            label=row.label,
            source=row.source,
            place=self.source.place(("ops", self.name, *loc)),
            dims=MappingProxyType({name: row.dims[name] for name in self.dims if name in row.dims}),
            params=MappingProxyType(self._row_params(loc, row)),
            cases=tuple(MappingProxyType(dict(case)) for case in row.dtypes),
            given=tuple(row.given),
        )

    def _row_dims(self, loc: tuple[object, ...], row: schema.WorkloadModel) -> None:
        for name in row.dims:
            if name not in self.dims:
                hint = suggestion(name, self.dims, there_are="dimensions")
                if name in self.model.params:
                    hint = "it is a parameter, so it goes under 'params'"
                self._problem(f"{name!r} is in no tensor's shape; {hint}", *loc, "dims", name)
        present = [t for t in self.tensors if not t.optional or t.name in row.given]
        for name in self.dims:
            users = [t.name for t in present if any(name in expression.names for expression in t.shape)]
            if users and name not in row.dims:
                said = f"dimension {name!r} has no size; it is in the shape of {listing(users)}"
                self._problem(said, *loc, "dims")

    def _row_cases(self, loc: tuple[object, ...], row: schema.WorkloadModel) -> None:
        variables = self.model.dtypes
        for j, case in enumerate(row.dtypes):
            where = (*loc, "dtypes", j)
            for name in case:
                self._known(name, variables, "dtype variables", *where, name, is_no="dtype variable")
            if missing := [name for name in variables if name not in case]:
                self._problem(f"dtype variable {listing(missing)} has no dtype in this case", *where)
            if case in row.dtypes[:j]:
                self._problem("this dtype case is in the row already; ids must differ", *where)

    def _row_params(self, loc: tuple[object, ...], row: schema.WorkloadModel) -> dict[str, Value]:
        for name in row.params:
            self._known(name, self.model.params, "parameters", *loc, "params", name, is_no="parameter")
        result: dict[str, Value] = {}
        for param in self.params:
            name = param.name
            if name in row.params:
                result[name], problem = typed(row.params[name], param.type)
                if problem is None and param.choices and result[name] not in param.choices:
                    choices = listing(map(repr, param.choices))
                    problem = f"{result[name]!r} is not among the choices {choices}"
                if problem:
                    self._problem(problem, *loc, "params", name)
            elif param.default is not None:
                result[name] = param.default
            else:
                said = f"parameter {name!r} has no default, so the row must give it"
                self._problem(said, *loc, "params")
        return result
