"""Which ``--NAME=VALUE`` a pair of files understands, told from their source without running it.

A name that nobody asks for is a typo, and a benchmark of other sizes than its command line says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kernelmark.errors import UsageError

__all__ = ["Accepted", "names_in_python", "require_known"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The names that the functions of one Python file take.

    ``mentioned`` are the texts in the file, which count where a function takes ``**kwargs``: it can only
    know a name that it spells out.
    """

    explicit: frozenset[str]
    mentioned: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.explicit or name in self.mentioned


def names_in_python(path: Path, functions: Iterable[str], *, required: Iterable[str]) -> Accepted:
    """Read which names ``functions`` of the file ``path`` take.

    Raises:
        UsageError: the file cannot be parsed, or lacks a ``required`` function.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        where = f"{path}:{getattr(error, 'lineno', None) or 1}"
        raise UsageError(f"{where}: this is no Python: {error}") from error
    _require_functions(tree, path, required)
    wanted = set(functions)
    explicit, open_ended = set[str](), False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            explicit |= {each.arg for each in given}
            open_ended = open_ended or node.args.kwarg is not None
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return Accepted(frozenset(explicit), frozenset(texts if open_ended else ()))


def require_known(values: Mapping[str, str], sources: Mapping[str, Accepted | frozenset[str]]) -> None:
    """Check that at least one of ``sources`` (by a name for the message) takes each of ``values``.

    Raises:
        UsageError: nobody takes one.
    """
    known = {
        name: None
        for source in sources.values()
        for name in sorted(source.explicit if isinstance(source, Accepted) else source)
    }
    for name, value in values.items():
        if any(name in source for source in sources.values()):
            continue
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean --{near[0]}?" if near else f"; there are {', '.join(known) or 'none'}"
        raise UsageError(
            f"--{name}={value}: neither an option nor a parameter of {' or '.join(sources)}{hint}"
        )


def _require_functions(tree: ast.Module, path: Path, required: Iterable[str]) -> None:
    bound = {
        name.id if isinstance(name, ast.Name) else ""
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            bound |= {alias.asname or alias.name for alias in node.names}
    missing = [name for name in required if name not in bound]
    if missing:
        raise UsageError(f"{path} defines no {' and no '.join(f'{name}(**kwargs)' for name in missing)}")
