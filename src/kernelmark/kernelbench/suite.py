"""Suites: lists of KernelBench kernels with the sizes they are run at, read from YAML with the line of each mistake.

A suite names files and sizes; it knows nothing of where the files are, nor of how a kernel is run.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import SuiteError, UsageError
from kernelmark.files.source import FileKind, Place, Source, kind_of, read_source
from kernelmark.text import listing, suggestion
from torchsched.ingress.flops import parse_gflops
from torchsched.ingress.shapes import parse_input_shapes

__all__ = ["SUITE", "Entry", "Run", "Sizes", "Suite", "Tolerances", "load_suite", "select"]

SUITE = FileKind("a suite", "a list of kernels, each with 'kernel' and 'input_shapes'", SuiteError)
_SIZE_KEYS = ("input_shapes", "initializations", "output_shape", "init_args", "gflops", "bytes")
_KEYS = ("kernel", *_SIZE_KEYS, "pipeline", "dtypes", "tolerances", "original")


class Sizes(StrEnum):
    """Which of an entry's sizes are run."""

    SUITE = "suite"
    """The suite's own, which two cores measure in seconds."""
    ORIGINAL = "original"
    """KernelBench's."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far an answer may be off, where the element type's own tolerances are not right for a kernel."""

    atol: float
    rtol: float


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel at one size: what the command that runs it is told."""

    input_shapes: tuple[str, ...]
    """As in ``1024x1024``, ``32xi64`` or ``=3.14``."""
    initializations: tuple[str | None, ...]
    """One for each input; ``None`` for one that is no tensor."""
    output_shape: tuple[str, ...]
    """What it gives, a tensor each; empty where the suite does not say."""
    init_args: tuple[Any, ...] | None
    """``None`` takes the model file's own."""
    gflops: str | None
    """Arithmetic that gives billions of operations a call."""
    bytes: int | None
    """Bytes that a call moves at least."""

    def inputs(self, dtype: str) -> str:
        """Write the inputs as ``--input-shapes`` wants them; ``dtype`` is for those that name none."""
        return ",".join(
            shape if values is None else f"{_with_element(shape, dtype)}x{values}"
            for shape, values in zip(self.input_shapes, self.initializations, strict=True)
        )

    def output(self, dtype: str) -> str | None:
        """Write the outputs as ``--output-shape`` wants them."""
        return ",".join(f"{_with_element(shape, dtype)}x0" for shape in self.output_shape) or None


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a suite."""

    kernel: str
    """``level1/1_Square_matrix_multiplication_.py``: a file below the tree's root."""
    pipeline: str
    suite: Run
    original: Run | None
    place: Place = field(compare=False)
    dtypes: tuple[str, ...] = ()
    """The element types it can be run in; empty for any."""
    tolerances: Tolerances | None = None

    @property
    def level(self) -> str:
        """The first part of the name: ``level1``."""
        return self.kernel.split("/", 1)[0]

    def at(self, sizes: Sizes) -> Run:
        """Give the run at these sizes.

        Raises:
            SuiteError: the entry has no original sizes.
        """
        if sizes is Sizes.SUITE:
            return self.suite
        if self.original is None:
            raise self.place.error("the entry has no 'original' sizes; run it with --sizes suite")
        return self.original


@dataclass(frozen=True, slots=True)
class Suite:
    """One YAML file of entries."""

    path: Path
    entries: tuple[Entry, ...]


def load_suite(path: Path) -> Suite:
    """Read one suite.

    Raises:
        SuiteError: it cannot be read, or an entry is malformed; with file, line and field.
    """
    source = read_source(path, kind=SUITE)
    if not isinstance(source.value, list):
        raise source.error(f"{SUITE.noun} is {SUITE.needs}, and this is {kind_of(source.value)}")
    if not source.value:
        raise source.error(f"there is no kernel in it; {SUITE.noun} is {SUITE.needs}")
    entries: list[Entry] = []
    lines: dict[str, int] = {}
    for number, value in enumerate(source.value):
        entry = _Reader(source, number, value).entry()
        if entry.kernel in lines:
            raise entry.place.error(f"{entry.kernel} stands on line {lines[entry.kernel]} already; keep one")
        lines[entry.kernel] = entry.place.line
        entries.append(entry)
    return Suite(path, tuple(entries))


def select(entries: Iterable[Entry], prefixes: Sequence[str] = (), *, hint: str = "") -> tuple[Entry, ...]:
    """Give the entries whose name starts with one of ``prefixes``, in the suite's order; all of them without any.

    Args:
        entries: All there are.
        prefixes: Beginnings of names.
        hint: What to say besides where one fits none.

    Raises:
        UsageError: a prefix fits none; the message names those near it.
    """
    entries = tuple(entries)
    for prefix in prefixes:
        if not any(entry.kernel.startswith(prefix) for entry in entries):
            names = [entry.kernel for entry in entries]
            near = "; ".join(filter(None, [_near(prefix, names), hint]))
            raise UsageError(f"--kernel {prefix}: no kernel's name starts with it; {near}")
    if not prefixes:
        return entries
    return tuple(entry for entry in entries if entry.kernel.startswith(tuple(prefixes)))


def _near(prefix: str, names: Sequence[str]) -> str:
    """Name the kernels that are near a prefix: those that hold its words, or begin in nearly the same way."""
    word = prefix.split("/")[-1].strip("0123456789_").lower()
    near = [name for name in names if len(word) > 2 and word in name.lower()]
    if not near:
        heads = {name[: len(prefix)].lower() for name in names}
        close = tuple(difflib.get_close_matches(prefix.lower(), heads, n=3))
        near = [name for name in names if close and name.lower().startswith(close)]
    return f"did you mean {listing(near)}?" if near else f"there are {listing(names)}"


def _with_element(shape: str, dtype: str) -> str:
    """Name the element type where the shape does not: its last part is then a size."""
    return f"{shape}x{dtype}" if shape.rsplit("x", 1)[-1].isdigit() else _named(shape, dtype)


def _named(shape: str, dtype: str) -> str:
    # A tensor of no dimension is written as its element type alone; f32 there stands for the run's own.
    return dtype if shape == "f32" else shape


class _Reader:
    """Reads one entry; every mistake is told with its own line."""

    def __init__(self, source: Source, number: int, value: Any) -> None:
        self._source, self._number, self._value = source, number, value

    def entry(self) -> Entry:
        value = self._value
        if not isinstance(value, dict):
            raise self._error(f"an entry is a mapping with 'kernel' and 'input_shapes', not {kind_of(value)}")
        self._known(value, _KEYS)
        kernel = self._text(value, "kernel")
        if kernel.count("/") < 1 or not kernel.endswith(".py"):
            raise self._error(f"{kernel!r}: write LEVEL/FILE.py, as in level1/19_ReLU.py", "kernel")
        original = value.get("original")
        if original is not None and not isinstance(original, dict):
            raise self._error(f"a mapping of sizes, not {kind_of(original)}", "original")
        run = self._run(value, ())
        return Entry(
            kernel=kernel,
            pipeline=self._text(value, "pipeline", default="default"),
            suite=run,
            original=self._original(original, run) if original is not None else None,
            place=self._source.place((self._number, "kernel")),
            dtypes=self._texts(value, "dtypes", default=()),
            tolerances=self._tolerances(value.get("tolerances")),
        )

    def _original(self, value: dict[str, Any], run: Run) -> Run:
        self._known(value, _SIZE_KEYS, "original")
        kept = {"initializations": list(run.initializations), **value}
        return self._run(kept, ("original",))

    def _run(self, value: dict[str, Any], where: tuple[str, ...]) -> Run:
        shapes = self._texts(value, "input_shapes", where=where)
        run = Run(
            input_shapes=shapes,
            initializations=self._initializations(value, shapes, where),
            output_shape=self._texts(value, "output_shape", where=where, default=()),
            init_args=self._arguments(value.get("init_args"), where),
            gflops=None if value.get("gflops") is None else str(value["gflops"]),
            bytes=self._count(value, "bytes", where),
        )
        for key, text in (("input_shapes", run.inputs("f32")), ("output_shape", run.output("f32"))):
            self._readable(lambda text=text: parse_input_shapes(text or ""), *where, key)
        if run.gflops is not None:
            self._readable(lambda: parse_gflops(run.gflops or ""), *where, "gflops")
        return run

    def _readable(self, read: Callable[[], object], *where: str) -> None:
        """Let what the command for one model would read be read now, where its line is known."""
        try:
            read()
        except UsageError as error:
            raise self._error(str(error), *where) from None

    def _initializations(
        self, value: dict[str, Any], shapes: tuple[str, ...], where: tuple[str, ...]
    ) -> tuple[str | None, ...]:
        given = value.get("initializations")
        if given is None:
            given = [None if shape.startswith("=") else "rnd" for shape in shapes]
        if not isinstance(given, list) or len(given) != len(shapes):
            raise self._error(
                f"a list with one for each of the {len(shapes)} input_shapes, as in [rnd, id]; got {given!r}",
                *where,
                "initializations",
            )
        for shape, values in zip(shapes, given, strict=True):
            if (values is None) != shape.startswith("="):
                raise self._error(
                    f"{shape!r} with {values!r}: a tensor needs a word such as rnd, and an input that is no"
                    " tensor (=3.14) takes ~",
                    *where,
                    "initializations",
                )
        return tuple(None if values is None else str(values) for values in given)

    def _arguments(self, given: Any, where: tuple[str, ...]) -> tuple[Any, ...] | None:
        if given is None:
            return None
        if not isinstance(given, list):
            raise self._error(
                f"a list of constructor arguments, not {kind_of(given)}; none is []", *where, "init_args"
            )
        return tuple(self._argument(each, where) for each in given)

    def _argument(self, value: Any, where: tuple[str, ...]) -> Any:
        """Read one argument; text in brackets is a tuple, which YAML has no word for."""
        if isinstance(value, list):
            return [self._argument(each, where) for each in value]
        if not (isinstance(value, str) and value.startswith("(")):
            return value
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise self._error(f"{value!r} is no Python tuple ({error})", *where, "init_args") from None

    def _tolerances(self, value: Any) -> Tolerances | None:
        if value is None:
            return None
        if not isinstance(value, dict) or set(value) != {"atol", "rtol"}:
            raise self._error("a mapping of atol and rtol, both numbers", "tolerances")
        for name, number in value.items():
            if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
                raise self._error(
                    f"{name} must be a number that is not negative, got {number!r}", "tolerances"
                )
        return Tolerances(float(value["atol"]), float(value["rtol"]))

    def _count(self, value: dict[str, Any], key: str, where: tuple[str, ...] = ()) -> int | None:
        number = value.get(key)
        if number is None or (isinstance(number, int) and not isinstance(number, bool) and number >= 0):
            return number
        raise self._error(f"a whole number that is not negative, not {number!r}", *where, key)

    def _text(self, value: dict[str, Any], key: str, *, default: str | None = None) -> str:
        if key not in value and default is None:
            raise self._error(f"the entry has no {key!r}")
        text = value.get(key, default)
        if not isinstance(text, str):
            raise self._error(f"text, not {kind_of(text)}", key)
        return text

    def _texts(
        self,
        value: dict[str, Any],
        key: str,
        *,
        where: tuple[str, ...] = (),
        default: tuple[str, ...] | None = None,
    ) -> tuple[str, ...]:
        if key not in value and default is None:
            raise self._error(f"the entry has no {key!r}", *where)
        given = value.get(key, default)
        # A vector's size alone, such as 4096, is a number to YAML.
        parts = list(given) if isinstance(given, list | tuple) else [given]
        if not all(isinstance(part, str | int) and not isinstance(part, bool) for part in parts):
            raise self._error(f"sizes such as 1024x1024, not {given!r}", *where, key)
        return tuple(str(part).replace(" ", "") for part in parts)

    def _known(self, value: dict[str, Any], keys: Sequence[str], *where: str) -> None:
        for key in value:
            if key not in keys:
                hint = suggestion(key, keys, there_are="keys")
                raise self._error(f"unknown key; {hint}", *where, key)

    def _error(self, message: str, *loc: str) -> SuiteError:
        return self._source.error(message, self._number, *loc)
