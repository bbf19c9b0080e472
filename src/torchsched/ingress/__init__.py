"""Ways in: a model file, a module, or a graph becomes linalg on tensors with a signature.

Names load when first used: reading an input specification needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchsched.ingress.flops import parse_gflops
    from torchsched.ingress.imported import Imported
    from torchsched.ingress.importing import import_graph, import_model
    from torchsched.ingress.model_file import LoadedModel, draw_inputs, load_model, make_model
    from torchsched.ingress.shapes import (
        InputSpec,
        parse_init_args,
        parse_input_shapes,
    )

__all__ = [
    "Imported",
    "InputSpec",
    "LoadedModel",
    "draw_inputs",
    "import_graph",
    "import_model",
    "load_model",
    "make_model",
    "parse_gflops",
    "parse_init_args",
    "parse_input_shapes",
]

_HOME = {
    "Imported": "imported",
    "InputSpec": "shapes",
    "LoadedModel": "model_file",
    "draw_inputs": "model_file",
    "import_graph": "importing",
    "import_model": "importing",
    "load_model": "model_file",
    "make_model": "model_file",
    "parse_gflops": "flops",
    "parse_init_args": "shapes",
    "parse_input_shapes": "shapes",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
