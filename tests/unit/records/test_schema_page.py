"""The page on the format names every field there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from kernelmark.records import FORMAT_VERSION, Note, Record, model

PAGE = (Path(__file__).parents[3] / "docs" / "records.md").read_text(encoding="utf-8")
TYPES = [
    each
    for name in model.__all__
    if isinstance(each := getattr(model, name), type) and issubclass(each, Record)
] + [Note]


@pytest.mark.parametrize(
    "record", [each for each in TYPES if each is not Record], ids=lambda each: each.__name__
)
def test_every_field_of_a_record_is_explained_in_its_order(record: type[BaseModel]):
    section = PAGE.partition(f"\n### `{record.__name__}`\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE) == list(record.model_fields)


def test_the_history_of_the_format_ends_with_the_version_in_use():
    versions = re.findall(r"^\| (\d+) \| \w", PAGE, re.MULTILINE)
    assert [int(version) for version in versions] == list(range(1, FORMAT_VERSION + 1))


def test_there_is_a_stored_file_of_every_version_that_was():
    data = Path(__file__).parents[2] / "data"
    for version in range(1, FORMAT_VERSION + 1):
        assert (data / f"run_v{version}" / "records.jsonl").is_file()
