# ruff: noqa: E501 - a table of cases reads best with one case a line
from __future__ import annotations

import ast

import pytest

from kernelmark.manifest.levels.bindings import UNKNOWN, calls_in


def callees(source: str, package: str = "benchmarks.ops") -> list[set[str]]:
    """Give what each call of the source may call, in the order of the text."""
    found = calls_in(ast.parse(source), package)
    found.sort(key=lambda each: (each[0].lineno, each[0].col_offset))
    return [scope.names(call.func) for call, scope in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import p.api\np.api.f()", "p.api.f"),
        ("import p.api as a\na.f()", "p.api.f"),
        ("from p import api\napi.f()", "p.api.f"),
        ("from p import api as a\na.f()", "p.api.f"),
        ("from p.api import f\nf()", "p.api.f"),
        ("from p.api import f as g\ng()", "p.api.f"),
        ("from p.api import *\nf()", "p.api.f"),
        ("from . import api\napi.f()", "benchmarks.ops.api.f"),
        ("from .. import api\napi.f()", "benchmarks.api.f"),
        ("from ..api import f\nf()", "benchmarks.api.f"),
        ("from p import api\ng = api.f\ng()", "p.api.f"),
        ("from p import api\ng: object = api.f\ng()", "p.api.f"),
        ("from p import api\na = api\ng = a.f\nh = g\nh()", "p.api.f"),
        ("from p import api\ng, h = api.f, 3\ng()", "p.api.f"),
        ("from p import api\n(g := api.f)()", "p.api.f"),
        ("from p import api\n[g := api.f]\ng()", "p.api.f"),
        ("from p import api\ndef t():\n    api.f()", "p.api.f"),
        ("def t():\n    from p import api\n    def u():\n        api.f()", "p.api.f"),
        ("from p import api\nclass C:\n    def t(self):\n        api.f()", "p.api.f"),
        ("from p import api\nt = lambda: api.f()", "p.api.f"),
        ("from p import api\nt = [api.f() for _ in x]", "p.api.f"),
        ("def t():\n    global api\n    from p import api\ndef u():\n    api.f()", "p.api.f"),
        ("def t():\n    api = None\n    def u():\n        nonlocal api\n        from p import api\n    api.f()", "p.api.f"),
        ("try:\n    from p import api\nexcept ImportError:\n    api = None\napi.f()", "p.api.f"),
        ("from p import api\nfor g in [api.f]:\n    g()", "p.api.f"),
        ("from p import api\nGS = (api.f,)\nfor g in GS:\n    g()", "p.api.f"),
        ("from p import api\n[g() for g in (api.f,)]", "p.api.f"),
        ("from p import api\nfor n, g in [(1, api.f)]:\n    g()", "p.api.f"),
        ("from p import api\nA = [api.f]\nfor g in [*A]:\n    g()", "p.api.f"),
    ],
)  # fmt: skip
def test_a_call_is_followed_to_the_name_it_was_imported_as(source: str, expected: str) -> None:
    assert callees(source)[-1] == {expected}


@pytest.mark.parametrize(
    "source",
    [
        "f()",
        "from p import api\ndef t(api):\n    api.f()",
        "from p import api\ndef t(*, api=None):\n    api.f()",
        "from p import api\ndef api(): ...\nx = 1\ny = api.f\nx()",
        "class C:\n    from p import api\n    def t(self):\n        api.f()",
        "from p import api\nwith x as api:\n    api.f()",
        "from p import api\ntry:\n    x\nexcept E as api:\n    api.f()",
        "from p import api\nt = lambda api: api.f()",
        "from p import api\n[api.f() for api in x]",
        "from p import api\nx[0].f()",
        "a = b\nb = a\na()",
        "g = h = g\ng()",
        "for g in g:\n    g()",
        "from p import api\nfor n, g in [api.f]:\n    g()",
    ],
)
def test_a_name_that_is_something_else_here_is_not_taken_for_the_import(source: str) -> None:
    assert UNKNOWN in callees(source)[-1]


def test_a_name_bound_to_two_things_stands_for_both() -> None:
    assert callees("from p import f\nf = other\nf()")[-1] == {"p.f", UNKNOWN}
    assert callees("from p import f, g\nh = f if x else g\nh()")[-1] == {"p.f", "p.g"}


@pytest.mark.parametrize(
    "source",
    [
        "'f()'",
        "# f()\nx = 1",
        "f",
        "x = f",
        "if False:\n    f()",
        "if 0:\n    f()",
        "if True:\n    pass\nelse:\n    f()",
        "while False:\n    f()",
        "if TYPE_CHECKING:\n    f()",
        "if typing.TYPE_CHECKING:\n    f()",
    ],
)
def test_text_comments_mere_names_and_dead_code_are_no_calls(source: str) -> None:
    assert callees(source) == []


def test_calls_in_decorators_defaults_and_class_bases_are_seen_from_outside() -> None:
    source = "from p import f\n@f(1)\ndef t(f, x=f(2)): ...\nclass C(f(3)): ...\n"
    assert callees(source) == [{"p.f"}] * 3
