"""What is written can be read: it includes the schedule, with the values found in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import RecordError
from kernelmark.models.tuning.descriptor import descriptor_text, write_descriptor
from torchsched.descriptors import load_schedule
from torchsched.descriptors.lookup import SHIPPED
from torchsched.targets import Target

TARGET = Target("x86_64", threads=4, vector_bits=512, openmp="libomp.so")
TEXT = """\
description: mine
parameters:
  mr: {default: 8, choices: [4, 8]}
  tiles: {default: [1, 8]}
  word: {default: "on", choices: ["on", "no: way", "3"]}
  share: {default: 0.5, choices: [0.5, 1.0e-05]}
  flag: {default: true}
  threads: {default: 0, choices: [0, 1, 2]}
pipeline:
  - pass: a{mr=$mr tiles=$tiles word=$word share=$share flag=$flag threads=$threads}
"""
PROVENANCE = {
    "made": "2026-03-01T12:00:00+00:00",
    "machine": "A: CPU #3",
    "ratio": {"value": 1.25, "low": None},
}


def test_the_values_are_in_force_and_can_still_be_changed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    source = tmp_path / "mine" / "s.yaml"
    source.write_text(TEXT)
    schedule = load_schedule(source, TARGET, values={"flag": "false"})
    values = {"mr": 4, "tiles": (2, 16), "word": "no: way", "share": 1e-05, "threads": 2}
    path = write_descriptor(tmp_path / "out" / "tuned.yaml", schedule, values, PROVENANCE)
    tuned = load_schedule(path, TARGET)
    assert tuned.values == {**values, "flag": False}
    assert tuned.target.threads == 2
    assert [step.name for step in tuned.steps] == [
        "a{mr=4 tiles=2,16 word=no: way share=1e-05 flag=false threads=2}"
    ]
    assert tuned.provenance == PROVENANCE
    assert "include: ../mine/s.yaml" in path.read_text()
    assert tuned.with_parameters(mr=8).values["mr"] == 8
    assert {each.name: each.choices for each in tuned.parameters}["mr"] == (4, 8)


def test_a_shipped_schedule_is_included_from_its_root(tmp_path: Path) -> None:
    schedule = load_schedule(SHIPPED / "matmul.yaml", TARGET, values={"mr": 4})
    path = write_descriptor(tmp_path / "tuned.yaml", schedule, {"kc": 256}, PROVENANCE)
    text = path.read_text()
    assert "- include: shipped:matmul.yaml" in text
    assert str(SHIPPED) not in text
    tuned = load_schedule(path, TARGET)
    assert (tuned.values["mr"], tuned.values["kc"], tuned.values["nr"]) == (4, 256, 0)
    assert [step.name for step in tuned.steps] == [
        step.name for step in schedule.with_parameters(kc=256).steps
    ]


def test_several_pipelines_follow_one_another(tmp_path: Path) -> None:
    schedule = load_schedule((SHIPPED / "matmul.yaml", SHIPPED / "loops.yaml"), TARGET)
    text = descriptor_text(tmp_path / "tuned.yaml", schedule, {}, PROVENANCE)
    assert text.index("shipped:matmul.yaml") < text.index("shipped:loops.yaml")


def test_a_value_that_was_none_of_the_choices_becomes_one(tmp_path: Path) -> None:
    source = tmp_path / "s.yaml"
    source.write_text("parameters:\n  n: {default: 3}\npipeline:\n  - pass: a{n=$n}\n")
    path = write_descriptor(tmp_path / "t.yaml", load_schedule(source, TARGET), {"n": 5}, PROVENANCE)
    assert load_schedule(path, TARGET).values == {"n": 5}


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    schedule = load_schedule(SHIPPED / "matmul.yaml", TARGET)
    with pytest.raises(RecordError, match=r"cannot make the folder .* --write"):
        write_descriptor(tmp_path / "file" / "t.yaml", schedule, {}, PROVENANCE)
