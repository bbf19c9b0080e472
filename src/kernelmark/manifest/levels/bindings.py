"""What the names in a Python file stand for, as far as its text says: imports, aliases, loops over literals.

Follows scopes as Python does, but not the order of statements: a name that is bound twice stands for both
values, and what the text does not tell is :data:`UNKNOWN` rather than a guess. Knows nothing of benchmarks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["UNKNOWN", "Scope", "calls_in"]

UNKNOWN = ""
"""Stands for a value whose dotted name cannot be told."""
_NOTHING = ast.Constant(None)


@dataclass(slots=True)
class Scope:
    """One module, function, class or comprehension, with what its names are bound to."""

    parent: Scope | None = None
    kind: str = ""
    """``class``, ``comprehension``, or neither."""
    bound: dict[str, list[_Bound]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    outer: dict[str, Scope] = field(default_factory=dict)
    """Names declared global or nonlocal, and the scope they belong to."""

    def bind(self, name: str, bound: _Bound) -> None:
        """Note that ``name`` is bound here, or in the scope it was declared to belong to."""
        self.outer.get(name, self).bound.setdefault(name, []).append(bound)

    def lookup(self, name: str) -> list[_Bound]:
        """Give what ``name`` is bound to where Python would look: not in the class around a method."""
        for scope in self.outwards():
            owner = scope.outer.get(name, scope)
            if name in owner.bound and (scope.kind != "class" or scope is self):
                return owner.bound[name]
        return []

    def outwards(self) -> list[Scope]:
        """Give this scope and those around it, the module's last."""
        return [self, *(self.parent.outwards() if self.parent else ())]

    def names(self, node: ast.expr, seen: frozenset[int] = frozenset()) -> set[str]:
        """Give the dotted names that ``node`` may stand for, :data:`UNKNOWN` for what cannot be told.

        A node that is ``seen`` already leads back to itself, and stands for nothing known.
        """
        if id(node) in seen:
            return {UNKNOWN}
        seen |= {id(node)}
        match node:
            case ast.Name():
                if bound := self.lookup(node.id):
                    return set().union(*(each.names(seen) for each in bound))
                stars = self.outwards()[-1].stars
                return {f"{stars[-1]}.{node.id}"} if stars else {UNKNOWN}
            case ast.Attribute():
                return {f"{base}.{node.attr}" if base else UNKNOWN for base in self.names(node.value, seen)}
            case ast.NamedExpr():
                return self.names(node.value, seen)
            case ast.IfExp():
                return self.names(node.body, seen) | self.names(node.orelse, seen)
        return {UNKNOWN}

    def elements(self, node: ast.expr, seen: frozenset[int]) -> Iterator[tuple[Scope, ast.expr]]:
        """Give the elements of a literal, or of a name that is bound to one; for another, what leads nowhere."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            for element in node.elts:
                if isinstance(element, ast.Starred):
                    yield from self.elements(element.value, seen)
                else:
                    yield self, element
        elif isinstance(node, ast.Name) and id(node) not in seen:
            for bound in self.lookup(node.id):
                if isinstance(bound.to, str) or bound.is_element:
                    yield self, _NOTHING
                else:
                    yield from bound.scope.elements(bound.to, seen | {id(node)})
        else:
            yield self, _NOTHING


class _Bound(NamedTuple):
    """What a name was bound to, seen from ``scope``: a dotted name, a value, or an element of one."""

    scope: Scope
    to: str | ast.expr = UNKNOWN
    is_element: bool = False
    item: int | None = None
    """Which item of the element, where a loop unpacks pairs."""

    def names(self, seen: frozenset[int]) -> set[str]:
        if isinstance(self.to, str):
            return {self.to}
        if not self.is_element:
            return self.scope.names(self.to, seen)
        found: set[str] = set()
        for scope, element in self.scope.elements(self.to, seen):
            part: ast.expr = element
            if self.item is not None:
                items = element.elts if isinstance(element, ast.Tuple | ast.List) else []
                part = items[self.item] if self.item < len(items) else _NOTHING
            found |= scope.names(part, seen)
        return found or {UNKNOWN}


def calls_in(tree: ast.Module, package: str) -> list[tuple[ast.Call, Scope]]:
    """Give every call of a file that can run, with the scope it stands in, once all its bindings are known.

    Args:
        tree: The file.
        package: The dotted name of the package it is in, for relative imports.
    """
    reader = _Reader(package)
    reader.visit_all(tree.body)
    return reader.calls


class _Reader(ast.NodeVisitor):
    """Walks a file once, noting bindings and calls; code that can never run is left out."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.scope = Scope()
        self.calls: list[tuple[ast.Call, Scope]] = []

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self.scope))
        self.generic_visit(node)

    # --- what binds names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._bind(name, alias.name if alias.asname else name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.package.split(".")
        above = above[: len(above) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            if alias.name == "*":
                self.scope.stars.append(module)
            else:
                self._bind(alias.asname or alias.name, f"{module}.{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        outside = next(scope for scope in self.scope.outwards() if scope.kind != "comprehension")
        outside.bind(node.target.id, _Bound(self.scope, node.value))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop(node.target, node.iter, self.scope)
        self.visit_all([*node.body, *node.orelse])

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):  # with ... as x, x += 1: bound to what this does not follow
            self._bind(node.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.outer.update(dict.fromkeys(node.names, self.scope.outwards()[-1]))

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        around = [each for each in self.scope.outwards() if each.kind != "class" and each is not self.scope]
        for name in node.names:
            if owner := next((scope for scope in around if name in scope.bound), None):
                self.scope.outer[name] = owner

    # --- what opens a scope

    @contextmanager
    def _inside(self, scope: Scope) -> Iterator[None]:
        outside, self.scope = self.scope, scope
        yield
        self.scope = outside

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        if not isinstance(node, ast.Lambda):
            self._bind(node.name)
            self.visit_all(node.decorator_list)
        self.visit_all([*node.args.defaults, *node.args.kw_defaults])
        with self._inside(Scope(self.scope)):
            for argument in ast.iter_child_nodes(node.args):
                if isinstance(argument, ast.arg):
                    self._bind(argument.arg)
            self.visit_all(body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        with self._inside(Scope(self.scope, "class")):
            self.visit_all(node.body)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        inside = Scope(self.scope, "comprehension")
        for i, part in enumerate(node.generators):
            over = inside if i else self.scope  # only the first is read outside
            with self._inside(over):
                self.visit(part.iter)
            with self._inside(inside):
                self._loop(part.target, part.iter, over)
                self.visit_all(part.ifs)
        with self._inside(inside):
            self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    # ast's own naming
    visit_AsyncFor = visit_For  # noqa: N815
    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815
    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    # --- what can never run

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        runs = _constant(node.test)
        self.visit_all([] if runs is False else node.body)
        self.visit_all([] if runs is True else node.orelse)

    visit_While = visit_If  # noqa: N815 - ast's own naming

    # --- shared

    def _bind(self, name: str, to: str | ast.expr = UNKNOWN) -> None:
        self.scope.bind(name, _Bound(self.scope, to))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(), ast.Constant(value=None):
                # What a failed import leaves; the other binding is the one that can be called.
                self.scope.bound.setdefault(target.id, [])
            case ast.Name(), _:
                self._bind(target.id, value)
            case ast.Tuple(elts=[*targets]) | ast.List(elts=[*targets]), (
                ast.Tuple(elts=[*values]) | ast.List(elts=[*values])
            ) if len(targets) == len(values):
                for one, its_value in zip(targets, values, strict=True):
                    self._assign(one, its_value)
            case _:
                self.visit(target)

    def _loop(self, target: ast.expr, over: ast.expr, scope: Scope) -> None:
        targets = enumerate(target.elts) if isinstance(target, ast.Tuple | ast.List) else [(None, target)]
        for index, one in targets:
            if isinstance(one, ast.Name):
                self.scope.bind(one.id, _Bound(scope, over, is_element=True, item=index))
            else:
                self.visit(one)


def _constant(test: ast.expr) -> bool | None:
    """Say how a test comes out, where the text alone tells."""
    match test:
        case ast.Constant():
            return bool(test.value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
    return None
