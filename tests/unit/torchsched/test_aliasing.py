"""Loads and stores say which argument they touch, through address arithmetic and in parallel regions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kernelmark.errors import ModelLoweringError
from torchsched.aliasing import say_apart
from torchsched.bindings import available, bindings

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

TEXT = """
llvm.func @main(%a: !llvm.ptr, %n: i64, %b: !llvm.ptr) {
  %x = llvm.load %a : !llvm.ptr -> f32
  %p = llvm.getelementptr %b[%n] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %q = llvm.getelementptr %p[1] : (!llvm.ptr) -> !llvm.ptr, f32
  omp.parallel {
    llvm.store %x, %q : f32, !llvm.ptr
    omp.terminator
  }
  %s = llvm.alloca %n x f32 : (i64) -> !llvm.ptr
  %y = llvm.load %s : !llvm.ptr -> f32
  llvm.store %b, %a : !llvm.ptr, !llvm.ptr
  llvm.return
}
"""


def parsed(text: str) -> Any:
    ir = bindings("ir")
    return ir.Module.parse(text, ir.Context())


def lines_of(module: Any, pattern: str) -> list[str]:
    return [line.strip() for line in str(module).splitlines() if re.search(pattern, line)]


def test_each_access_has_the_scope_of_its_argument_and_not_the_others() -> None:
    module = parsed(TEXT)
    say_apart(module)
    assert module.operation.verify()
    first = re.search(
        r"alias_scopes = \[(#\w+)\], noalias_scopes = \[(#\w+)\]", lines_of(module, r"%arg0 .*-> f32")[0]
    )
    store = re.search(
        r"alias_scopes = \[(#\w+)\], noalias_scopes = \[(#\w+)\]", lines_of(module, "store %0")[0]
    )
    assert first is not None
    assert store is not None
    assert first.groups() == store.groups()[::-1]
    assert first[1] != first[2]


def test_an_access_of_other_memory_promises_nothing() -> None:
    module = parsed(TEXT)
    say_apart(module)
    (own,) = lines_of(module, r"llvm\.load %\d+ .*-> f32")
    assert "alias_scopes" not in own


def test_a_pointer_that_is_stored_is_no_access_of_its_memory() -> None:
    module = parsed(TEXT)
    say_apart(module)
    (stored,) = lines_of(module, r"store %arg2, %arg0")
    scope = re.search(r"alias_scopes = \[(#\w+)\]", stored)
    loaded = re.search(r"alias_scopes = \[(#\w+)\]", lines_of(module, r"%arg0 .*-> f32")[0])
    assert scope is not None
    assert loaded is not None
    assert scope[1] == loaded[1]


def test_a_module_that_is_not_in_the_llvm_dialect_is_refused() -> None:
    with pytest.raises(ModelLoweringError, match=r"has no llvm\.func 'main'"):
        say_apart(parsed("func.func @main() {\n  return\n}"))
