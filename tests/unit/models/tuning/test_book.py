"""A search that is gone on with is the one that was begun, or an error that names the difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmark.errors import RecordError, UsageError
from kernelmark.models.tuning.book import STATE_FILE, State, read_state

OLD = Path(__file__).parents[3] / "data" / "search_v1"


def test_a_state_reads_back_as_it_was(tmp_path: Path) -> None:
    state = State(question={"the model": "m"}, spent_s=12.5, candidates=8)
    state.write(tmp_path / "new" / "folder")
    assert read_state(tmp_path / "new" / "folder") == state


def test_a_search_of_the_first_format_is_gone_on_with(tmp_path: Path) -> None:
    state = read_state(OLD)  # written on 2026-12-01, and never again
    assert (state.candidates, round(state.spent_s, 1)) == (2, 4.3)
    state.require_same(dict(state.question), OLD)
    with pytest.raises(
        UsageError, match="begun with the inputs float32\\[2, 4\\], and this is float32\\[8, 4\\]"
    ):
        state.require_same({**state.question, "the inputs": "float32[8, 4]"}, OLD)
    state.write(tmp_path)
    assert read_state(tmp_path) == state


def test_another_question_is_named_with_both_values(tmp_path: Path) -> None:
    state = State(question={"the model": "m (1)", "the seed": "0"})
    state.require_same({"the model": "m (1)", "the seed": "0"}, tmp_path)
    with pytest.raises(UsageError, match=r"begun with the model m \(1\), and this is m \(2\)"):
        state.require_same({"the model": "m (2)", "the seed": "0"}, tmp_path)
    with pytest.raises(UsageError, match=r"begun with torch nothing, and this is 2"):
        state.require_same({"the model": "m (1)", "the seed": "0", "torch": "2"}, tmp_path)


def test_a_folder_without_a_search_cannot_be_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no search in"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no search's state"),
        ("[]", "no search's state"),
        ('{"version": 1, "unknown": 2}', "no search's state"),
        ('{"version": 1, "question": 3}', "no search's state"),
        ('{"version": 2}', "no search's state .version: Input should be 1, and is 2.; begin anew"),
    ],
)
def test_a_file_that_is_no_state_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(RecordError, match=message):
        read_state(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot make the folder"):
        State().write(tmp_path / "file" / "below")


def test_the_file_says_its_version(tmp_path: Path) -> None:
    State().write(tmp_path)
    assert json.loads((tmp_path / STATE_FILE).read_text())["version"] == 1
