"""The options that the commands for a model share: the model's inputs, its schedule, its check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

from kernelmark.cli import console
from kernelmark.errors import UsageError
from kernelmark.records import Cache

__all__ = ["checking_options", "model_options", "request_options", "timing_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SHARED = (
    click.option(
        "--pipeline",
        multiple=True,
        metavar="NAME|FILE",
        help="Schedule, by its name or its file; may be repeated. Otherwise 'default'.",
    ),
    click.option(
        "--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the schedule."
    ),
    click.option(
        "--schedules", "roots", multiple=True, type=console.PATH, help="Folder of schedules of your own."
    ),
    click.option("--target", help="Architecture to look schedules up for; otherwise this machine's."),
    click.option("--feature", help="Vector feature to look schedules up for (avx512, ...), or none."),
    click.option("--threads", type=int, help="Threads of the code and of PyTorch; otherwise one a core."),
    click.option("--dtype", help="Convert the model and its inputs: f32, bf16, f16, f64."),
    click.option(
        "--input-shapes", metavar="SHAPES", help="Inputs such as 1024x1024xf32xrnd,1024x1024xf32xid."
    ),
    click.option("--init-args", metavar="LIST", help="What Model is made with, such as [64, (3, 3)]."),
)
_CHECKED = (
    click.option(
        "--cache",
        **console.choice(Cache.COLD),
        help="Whether the caches are flushed before each timed call.",
    ),
    click.option(
        "--tolerance", type=float, help="RMS error over the answer's; otherwise by the element type."
    ),
    click.option("--atol", type=float, help="With --rtol: compare each element by itself."),
    click.option("--rtol", type=float, help="With --atol: compare each element by itself."),
)
_TIMED = (
    click.option("--iterations", default=100, show_default=True, help="Samples of each implementation."),
    click.option(
        "--baselines",
        default="all",
        show_default=True,
        help="What to time it next to: eager, inductor, a compiler that is installed, all (the first two), none.",
    ),
    click.option("--seed", default=0, show_default=True, help="What parameters and inputs are drawn with."),
)


def _giving(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    return lambda command: reduce(lambda given, option: option(given), reversed(options), command)


_SECOND = click.option("--no-second-draw", is_flag=True, help="Check on one draw of the inputs only.")
model_options = _giving(*_SHARED, *_CHECKED, _SECOND)
"""Gives a command the options that say what is compiled, and how it is checked."""
checking_options = _giving(*_CHECKED)
"""Gives a command the options that say how an answer is checked."""
timing_options = _giving(*_TIMED)
"""Gives a command the options that say how often it is called, and beside what."""


def request_options(given: dict[str, Any]) -> dict[str, Any]:
    """Turn what the shared options were given into arguments of a request for a model."""
    from kernelmark.verify import Tolerances
    from torchsched.building import DEFAULT_PIPELINE
    from torchsched.elements import Element
    from torchsched.ingress import parse_init_args, parse_input_shapes

    shapes = given["input_shapes"]
    return {
        "pipeline": given["pipeline"] or (DEFAULT_PIPELINE,),
        "values": _values(given["params"]),
        **{name: given[name] for name in ("roots", "target", "feature", "threads")},
        "element": None if given["dtype"] is None else Element.parse(given["dtype"]),
        "inputs": None if shapes is None else parse_input_shapes(shapes),
        "init_args": parse_init_args(given["init_args"]),
        "cache": Cache(given["cache"]),
        "tolerance": Tolerances(given["tolerance"], given["atol"], given["rtol"], source="the command line"),
        "second_draw": not given["no_second_draw"],
    }


def _values(texts: Sequence[str]) -> dict[str, str]:
    """Read each ``NAME=VALUE`` of ``--param``."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--param {text}: write NAME=VALUE, such as mr=8")
        if name in values:
            raise UsageError(f"--param {name} is given twice: {values[name]} and {value}")
        values[name] = value
    return values
