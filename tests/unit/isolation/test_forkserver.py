"""The fork server: what it has loaded, how it fails to start, and that it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.isolation import ForkServer, Limits, Start, Worker, importing_the_same
from tests.unit.isolation import targets


def modules(preload: tuple[str, ...], name: str) -> bool:
    with Worker(
        targets.modules, Limits(20), start=Start.FORK, preload=preload, environment=importing_the_same()
    ) as worker:
        return worker.call(name).value()


def test_its_workers_have_what_it_has_loaded() -> None:
    assert not modules((), "colorsys")
    assert modules(("colorsys",), "colorsys")


def test_a_module_that_is_not_installed_is_left_to_what_needs_it() -> None:
    assert modules(("no_such_module", "colorsys"), "colorsys")


def test_one_that_cannot_import_says_why(tmp_path: Path) -> None:
    (tmp_path / "breaks_here.py").write_text("raise ValueError('broken on purpose')")
    with pytest.raises(UnavailableError, match="broken on purpose"):
        ForkServer(("breaks_here",), environment={"PYTHONPATH": str(tmp_path)})


def test_one_that_is_gone_is_told() -> None:
    server = ForkServer(environment=importing_the_same())
    server.close()
    with (
        Worker(targets.pid, Limits(20), start=server) as worker,
        pytest.raises(UnavailableError, match="run the command again"),
    ):
        worker.call()
