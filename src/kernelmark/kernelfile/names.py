"""Which ``--NAME=VALUE`` a pair of files understands, told from their source without running it.

A name that nobody asks for is a typo, and a benchmark of other sizes than its command line says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UsageError
from kernelmark.kernelfile.request import options
from kernelmark.text import suggestion

__all__ = ["Accepted", "names_in_python", "require_known"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The names that the functions of one Python file take.

    ``anything`` says that a function hands its ``**kwargs`` on to where its source does not show what is read
    from them, so that every name may mean something.
    """

    names: frozenset[str]
    anything: bool = False

    def __contains__(self, name: object) -> bool:
        return self.anything or name in self.names


def names_in_python(path: Path, functions: Iterable[str], *, required: Iterable[str]) -> Accepted:
    """Read which names ``functions`` of the file ``path`` take.

    A function takes its parameters, and of its ``**kwargs`` what it reads from them: ``kwargs["M"]``,
    ``kwargs.get("M")``, ``"M" in kwargs``, and what a function of the same file takes that it calls with
    ``**kwargs``. One that uses them in any other way takes every name; one that never uses them takes none.

    Raises:
        UsageError: the file cannot be parsed, or lacks a ``required`` function.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        where = f"{path}:{getattr(error, 'lineno', None) or 1}"
        raise UsageError(f"{where}: this is no Python: {error}") from error
    bound = _bound(tree)
    if missing := [f"{name}(**kwargs)" for name in required if name not in bound]:
        raise UsageError(f"{path} defines no {' and no '.join(missing)}")
    defined = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    wanted = [name for name in functions if name in bound]
    names, anything, seen = set[str](), False, set[str]()
    while wanted:
        name = wanted.pop()
        if name not in defined:  # imported, or called in a way that does not show what it is
            anything = True
        elif name not in seen:
            seen.add(name)
            given = defined[name].args
            names |= {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
            if given.kwarg is not None:
                read, passed_to, other = _uses(defined[name], given.kwarg.arg)
                names, anything = names | read, anything or other
                wanted += passed_to
    return Accepted(frozenset(names), anything)


def _uses(function: ast.FunctionDef, kwargs: str) -> tuple[set[str], list[str], bool]:
    """Give which names are read from ``kwargs``, which functions get all of them, and whether they have other uses."""
    read, passed_to = set[str](), list[str]()
    uses = understood = 0
    for node in ast.walk(function):
        match node:
            case ast.Name(id=used) if used == kwargs:
                uses += 1
            case (
                ast.Subscript(value=ast.Name(id=used), slice=ast.Constant(value=str(text)))
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id=used), attr="get" | "pop" | "setdefault"),
                    args=[ast.Constant(value=str(text)), *_],
                )
                | ast.Compare(
                    left=ast.Constant(value=str(text)),
                    ops=[ast.In() | ast.NotIn()],
                    comparators=[ast.Name(id=used)],
                )
            ) if used == kwargs:
                understood += 1
                read.add(text)
            case ast.Call(func=called, keywords=keywords):
                for each in keywords:
                    if each.arg is None and isinstance(each.value, ast.Name) and each.value.id == kwargs:
                        understood += 1
                        passed_to.append(called.id if isinstance(called, ast.Name) else "")
    return read, passed_to, uses > understood


def _bound(tree: ast.Module) -> set[str]:
    """Give the names that the file binds."""
    targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    bound = {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            bound |= {alias.asname or alias.name for alias in node.names}
    return bound


def require_known(values: Mapping[str, str], sources: Mapping[str, Accepted]) -> None:
    """Make sure that every name on the command line means something to the solution or the reference.

    Raises:
        UsageError: one does not; near names are given, options' too.
    """
    taken = dict.fromkeys(f"--{name}" for source in sources.values() for name in sorted(source.names))
    written = (name for option, told in options().items() for name in told.names or (option,))
    known = (*taken, *(f"--{name.removeprefix('--').replace('_', '-')}" for name in written))
    for name, value in values.items():
        if not any(name in source for source in sources.values()):
            near = suggestion(f"--{name}", known, there_are="they take")
            raise UsageError(
                f"--{name}={value}: neither an option nor a parameter of {' or '.join(sources)}; {near}"
            )
