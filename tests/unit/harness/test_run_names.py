"""One name for a run: its folder's, where that is a run's name; and a comparison shows itself as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.harness import Session, SessionOptions
from kernelmark.harness.provenance import run_name
from kernelmark.harness.runner import Comparison
from kernelmark.records import Check, Role, Row


@pytest.mark.parametrize("folder", [None, "runs/softmax", "runs/20260101-120000-beef-2"])
def test_a_run_has_a_name_of_its_own_where_its_folder_has_none(folder: str | None):
    names = {run_name(folder) for _ in range(2)}
    assert len(names) == 2
    assert folder is None or Path(folder).name not in names


def test_a_run_is_called_as_its_folder_is(tmp_path: Path):
    name = run_name()
    assert run_name(tmp_path / name) == name
    options = SessionOptions(out=tmp_path / name, device="cpu", verify_only=True)
    session = Session(options)
    assert session.start().run == name
    session.close()


def test_a_comparison_shows_its_table_at_a_prompt_and_in_a_notebook():
    rows = (Row(case="a <case>", implementation="mine", role=Role.OURS, check=Check.VERIFIED),)
    found = Comparison("a <case>", rows)
    assert repr(found) == str(found)
    assert "mine" in repr(found)
    assert "Row(" not in repr(found)
    assert found._repr_html_().startswith("<pre>")
    assert "a &lt;case&gt;" in found._repr_html_()
