"""Loads a model file: ``class Model``, ``get_inputs()`` and ``get_init_inputs()``, as KernelBench lays them out.

Runs the user's code, and says of whatever it raises where in the file that was. It compiles nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import ModelFileError, UsageError
from kernelmark.harness.loading import load_module
from kernelmark.text import listing, suggestion
from torchsched.elements import FLOATS, Element
from torchsched.ingress.shapes import InputSpec, Literal

__all__ = ["LoadedModel", "convert", "draw_inputs", "load_model", "make_model"]

_MODEL, _INPUTS, _INIT_INPUTS = "Model", "get_inputs", "get_init_inputs"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with inputs for it, in evaluation mode and all on the CPU."""

    path: Path
    model: torch.nn.Module = field(repr=False)
    inputs: tuple[Any, ...] = field(repr=False)
    init_args: tuple[Any, ...]
    """What ``Model`` was made with."""
    inferred: bool
    """Whether the inputs are the file's own."""

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


def load_model(
    path: Path,
    *,
    inputs: Sequence[InputSpec | Literal] | None = None,
    init_args: Sequence[Any] | None = None,
    element: Element | None = None,
    seed: int = 0,
) -> LoadedModel:
    """Load the file ``path`` and make its model and inputs; the same seed makes the same ones.

    The seed is set before the model is made and again before its inputs are, so that the inputs do not depend on
    how many numbers the parameters took. The process's own random state is left as it was.

    Args:
        path: The file.
        inputs: What the inputs are; None asks the file's ``get_inputs()``.
        init_args: What ``Model`` is made with; None asks the file's ``get_init_inputs()``.
        element: The floating-point type that the model and its floating-point inputs are converted to; None
            leaves them as they are. An input whose specification names a type keeps that.
        seed: Of parameters and inputs.

    Raises:
        UsageError: no such file, or ``element`` is no floating-point type.
        ModelFileError: the file lacks what a model file must hold, or its own code raised; says where.
    """
    path = Path(path)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        module, model, arguments = _made(path, _MODEL, init_args=init_args, element=element, seed=seed)
        given = (
            draw_inputs(inputs, element=element, seed=seed)
            if inputs is not None
            else _own_inputs(module, path, element, seed)
        )
    _require_arity(model, given, path, own=inputs is None)
    return LoadedModel(path, model.eval(), given, arguments, inputs is None)


def make_model(
    path: Path,
    *,
    name: str = _MODEL,
    init_args: Sequence[Any] | None = None,
    element: Element | None = None,
    seed: int = 0,
) -> torch.nn.Module:
    """Load the file ``path`` and make only the model that it calls ``name``, in the mode that torch makes it in.

    Raises:
        UsageError: no such file, or ``element`` is no floating-point type.
        ModelFileError: the file lacks the class, or its own code raised; says where.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return _made(path, name, init_args=init_args, element=element, seed=seed)[1]


def draw_inputs(
    inputs: Sequence[InputSpec | Literal], *, element: Element | None = None, seed: int = 0
) -> tuple[Any, ...]:
    """Draw what ``inputs`` say, on the CPU; the same seed draws the same. Literals stay as they are."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        each.value if isinstance(each, Literal) else _drawn(each, generator, element or Element.F32)
        for each in inputs
    )


def _made(
    path: Path, name: str, *, init_args: Sequence[Any] | None, element: Element | None, seed: int
) -> tuple[ModuleType, torch.nn.Module, tuple[Any, ...]]:
    """Load a file and make its model; the arguments that it was made with come back too."""
    if element is not None and element not in FLOATS:
        raise UsageError(f"a model cannot be converted to {element}; there are {listing(FLOATS)}")
    if not path.is_file():
        raise UsageError(f"{path} is no file; give the path of a model file")
    module = _import(path, seed)
    model_class = _model_class(module, path, name)
    arguments = _init_args(module, path, seed) if init_args is None else tuple(init_args)
    torch.manual_seed(seed)
    with _blaming(path, f"{name}({', '.join(map(repr, arguments))})"):
        model = model_class(*arguments)
    if element is not None:
        convert(model, element)
    return module, model, arguments


def convert(model: torch.nn.Module, element: Element) -> None:
    """Turn the parameters, buffers and plain tensor attributes of ``model`` that are floats into ``element``."""
    dtype = element.torch
    model.to(dtype)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, value.to(dtype))


# --- the file -----------------------------------------------------------------------------------------


def _import(path: Path, seed: int) -> ModuleType:
    torch.manual_seed(seed)
    with _blaming(path, "importing it"):
        return load_module(path)


def _model_class(module: ModuleType, path: Path, name: str) -> Callable[..., torch.nn.Module]:
    found = getattr(module, name, None)
    if found is None:
        classes = [
            each
            for each, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, torch.nn.Module)
        ]
        hint = suggestion(name, classes, there_are="modules in it")
        raise ModelFileError(f"{path} defines no class {name}; {hint}")
    if not (inspect.isclass(found) and issubclass(found, torch.nn.Module)):
        raise ModelFileError(f"{path}: {name} is {found!r}; it must be a class derived from torch.nn.Module")
    return found


def _init_args(module: ModuleType, path: Path, seed: int) -> tuple[Any, ...]:
    function = getattr(module, _INIT_INPUTS, None)
    return () if function is None else _call(function, _INIT_INPUTS, path, seed)


def _own_inputs(module: ModuleType, path: Path, element: Element | None, seed: int) -> tuple[Any, ...]:
    function = getattr(module, _INPUTS, None)
    if function is None:
        raise ModelFileError(
            f"{path} defines no {_INPUTS}(); write one, or give the inputs by --input-shapes"
        )
    given = _call(function, _INPUTS, path, seed)
    for number, value in enumerate(given):
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor) and (leaf.layout is not torch.strided or leaf.is_meta):
                what = "has no values (device meta)" if leaf.is_meta else f"has layout {leaf.layout}"
                raise ModelFileError(
                    f"{path}:{_line_of(function)}: input {number} of {_INPUTS}() {what}; give a strided tensor with"
                    " values"
                )
    return tuple(_converted(value, element) for value in given)


def _drawn(spec: InputSpec, generator: torch.Generator, element: Element) -> torch.Tensor:
    try:
        return spec.draw(generator, element=element)
    except RuntimeError as error:  # torch's, of memory or of sizes whose product is no 64-bit number
        text = str(error).partition("\n")[0]
        raise UsageError(f"input {spec} cannot be made: {text}") from error


def _call(function: Any, name: str, path: Path, seed: int) -> tuple[Any, ...]:
    if not callable(function):
        raise ModelFileError(f"{path}: {name} is {function!r}; it must be a function without parameters")
    torch.manual_seed(seed)
    with _blaming(path, f"{name}()"):
        given = function()
    if not isinstance(given, list | tuple):
        raise ModelFileError(
            f"{path}:{_line_of(function)}: {name}() gave {type(given).__name__}; it must give a list"
        )
    return tuple(given)


def _line_of(function: Any) -> int:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code else 1


def _converted(value: Any, element: Element | None) -> Any:
    if element is None:
        return value
    return pytree.tree_map(
        lambda leaf: (
            leaf.to(element.torch) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
        ),
        value,
    )


def _require_arity(model: torch.nn.Module, given: tuple[Any, ...], path: Path, *, own: bool) -> None:
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return  # written in C: calling it tells
    try:
        signature.bind(*given)
    except TypeError as error:
        source = f"{_INPUTS}() gives" if own else "--input-shapes gives"
        raise ModelFileError(
            f"{path}:{_line_of(model.forward)}: forward takes {signature}, and {source} {len(given)}"
            f" input(s): {error}"
        ) from None


@contextlib.contextmanager
def _blaming(path: Path, what: str) -> Iterator[None]:
    """Turn whatever the file's code raises into an error that says where in the file."""
    try:
        yield
    except ModelFileError:
        raise
    except SyntaxError as error:
        raise ModelFileError(
            f"{error.filename or path}:{error.lineno or 1}: no Python: {error.msg}"
        ) from error
    except ModuleNotFoundError as error:
        raise ModelFileError(
            f"{_place(error, path)}: {what}: {error}; install it where kernelmark is installed"
            " (kernelmark[kernelbench] has what KernelBench's models import besides torch)"
        ) from error
    except (Exception, SystemExit) as error:
        text = str(error).strip().partition("\n")[0]
        raise ModelFileError(
            f"{_place(error, path)}: {what} raised {type(error).__name__}: {text}"
        ) from error


def _place(error: BaseException, path: Path) -> str:
    own = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    return f"{path}:{own[-1].lineno}" if own else str(path)
