"""Every schedule that ships loads for every target it may be looked up for, with passes that MLIR knows."""

from __future__ import annotations

import pytest

from torchsched.bindings import available
from torchsched.descriptors import SHIPPED, find_schedule, list_schedules, load_schedule
from torchsched.descriptors.passes import check_passes
from torchsched.elements import FLOATS, Element
from torchsched.targets import Target, override

FILES = sorted(SHIPPED.rglob("*.yaml"))
TARGETS = [
    override(Target("x86_64"), feature="none"),
    override(Target("x86_64", threads=2, openmp="libomp.so"), feature="amx"),
    override(Target("aarch64", threads=2, openmp="libomp.so"), feature="sve"),
    Target("riscv64"),
]


@pytest.mark.skipif(not available(), reason=available().detail)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SHIPPED)))
def test_a_shipped_file_loads_and_mlir_knows_its_passes(path: object) -> None:
    for target in TARGETS:
        check_passes(load_schedule(path, target).written)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("pipeline", ["loops", "default"])
def test_loops_and_default_serve_every_target_and_element(
    pipeline: str, element: Element, target: Target
) -> None:
    steps = [step.name for step in find_schedule(pipeline, element, target).steps]
    assert ("convert-scf-to-openmp" in steps) is target.parallel
    assert steps[-1] != "convert-scf-to-openmp"


def test_every_shipped_schedule_says_what_it_is() -> None:
    assert list_schedules()
    for listed in list_schedules():
        assert listed.problem is None
        assert listed.description, listed.path
