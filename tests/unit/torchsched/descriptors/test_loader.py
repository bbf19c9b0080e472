"""Descriptors are read into steps; whatever is wrong with one is said with file, line and the chain of includes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import ScheduleError
from torchsched.descriptors import PassStep, TransformFileStep, TransformStep, load_schedule
from torchsched.targets import Target

Write = Callable[[str, str], Path]
TARGET = Target("x86_64", threads=4, vector_bits=512, openmp="libomp.so")
TRANSFORM = """
def pack(module, *, target, mr, nr=32):
    pass

def anything(module, **options):
    pass

def no_target(module, mr):
    pass

def no_module(*, target):
    pass

NUMBER = 3
"""


def names(path: Path, **values: object) -> list[str]:
    return [step.name for step in load_schedule(path, TARGET, values=values).steps]


@pytest.mark.spec("L8")
def test_passes_bundles_transforms_and_includes_become_steps_in_their_order(write: Write) -> None:
    write("tile.py", TRANSFORM)
    write("tile.mlir", "// ${mr} rows\n")
    write("lower.yaml", "pipeline:\n  - pass: convert-to-llvm\n")
    path = write(
        "matmul/f32.yaml",
        "description: a  matrix\n  product\n"
        "parameters:\n  mr: {default: 8, choices: [4, 8]}\n"
        "pipeline:\n"
        "  - transform: ../tile.py:pack\n    options: {mr: $mr, nr: [1, 8]}\n"
        "  - transform: ../tile.mlir\n"
        "  - pass: convert-vector-to-scf{full-unroll=true}\n"
        "  - bundle: [cse, canonicalize]\n"
        "  - include: ../lower.yaml\n",
    )
    schedule = load_schedule(path, TARGET)
    tiling, text, *passes = schedule.steps
    assert isinstance(tiling, TransformStep)
    assert tiling.function.endswith("tile.py:pack")
    assert tiling.parameters == {"mr": 8, "nr": (1, 8)}
    assert isinstance(text, TransformFileStep)
    assert text.parameters == {"mr": 8}
    assert all(isinstance(each, PassStep) for each in passes)
    assert [each.name for each in passes] == [
        "convert-vector-to-scf{full-unroll=true}",
        "cse",
        "canonicalize",
        "convert-to-llvm",
    ]
    assert schedule.description == "a matrix product"
    assert schedule.values == {"mr": 8}
    assert [each.origin.place.line for each in schedule.steps] == [6, 8, 9, 10, 10, 2]
    assert [each.line for each in passes[-1].origin.chain] == [11]


@pytest.mark.spec("L8")
def test_a_list_with_spaces_in_a_pass_option_is_written_as_mlir_reads_it(write: Write) -> None:
    path = write(
        "s.yaml",
        "parameters:\n  tiles: {default: [2, 16]}\n"
        "pipeline:\n"
        "  - pass: linalg-block-pack-matmul{block-factors=[1, 8, 32] allow-padding=true}\n"
        "  - pass: affine-loop-tile{tile-sizes=$tiles}\n"
        "  - pass: linalg-block-pack-matmul\n    options: {block-factors: [1, 8, 32], allow-padding: false}\n",
    )
    assert names(path) == [
        "linalg-block-pack-matmul{block-factors=1,8,32 allow-padding=true}",
        "affine-loop-tile{tile-sizes=2,16}",
        "linalg-block-pack-matmul{block-factors=1,8,32 allow-padding=false}",
    ]


def test_the_targets_own_numbers_need_no_declaration(write: Write) -> None:
    path = write("s.yaml", "pipeline:\n  - pass: x{threads=$threads bits=${vector_bits}}\n")
    assert names(path) == ["x{threads=4 bits=512}"]


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"s\.yaml:1: the file is empty; a schedule needs 'pipeline', a list of steps"),
        ("description: x\n", r"s\.yaml:1: required field 'pipeline' is missing"),
        ("pipeline: []\n", r"s\.yaml:1: pipeline: empty; give at least one"),
        (
            "pipelin:\n  - pass: cse\n",
            r"s\.yaml:1: pipelin: unknown field 'pipelin'; did you mean 'pipeline'",
        ),
        (
            "pipeline:\n  - passes: cse\n",
            r"s\.yaml:2: pipeline\.0\.passes: unknown field .* did you mean 'pass'",
        ),
        ("pipeline:\n  - canonicalize\n", r"s\.yaml:2: .*for a pass write '- pass: canonicalize'"),
        ("pipeline:\n  - {}\n", r"s\.yaml:2: .*one of include, transform, pass, bundle; found none of them"),
        ("pipeline:\n  - pass: cse\n    bundle: [cse]\n", r"s\.yaml:2: .*found 'pass' and 'bundle'"),
        ("pipeline:\n  - pass:\n", r"s\.yaml:2: pipeline\.0\.pass: nothing stands here"),
        ("pipeline:\n  - pass: ''\n", r"s\.yaml:2: .*blank; name a pass"),
        ("pipeline:\n  - bundle: []\n", r"s\.yaml:2: .*empty; give at least one"),
        ("pipeline:\n  - bundle: [cse]\n    options: {a: 1}\n", r"s\.yaml:2: .*a bundle takes no options"),
        ("pipeline:\n  - pass: a{b=1}\n    options: {c: 1}\n", r"s\.yaml:2: .*only with a bare name"),
        ("pipeline:\n  - pass: a\n    options: {c: {d: 1}}\n", r"s\.yaml:3: .*expected a number, text"),
        (
            "pipeline:\n  - transform: tile\n",
            r"s\.yaml:2: .*'tile' names no transform; write 'module:function'",
        ),
        ("pipeline:\n  - pass: a\n    when: paralel\n", r"s\.yaml:3: .*did you mean 'parallel'"),
        (
            "parameters:\n  Mr: {default: 8}\npipeline:\n  - pass: a\n",
            r"s\.yaml:2: .*cannot be a parameter's name",
        ),
        (
            "parameters:\n  vector_bits: {default: 8}\npipeline:\n  - pass: a\n",
            r"s\.yaml:2: .*the target's to say",
        ),
        (
            "parameters:\n  a: {}\npipeline:\n  - pass: a\n",
            r"s\.yaml:2: .*required field 'default' is missing",
        ),
        (
            "parameters:\n  a: {default: 3, choices: [1]}\npipeline:\n  - pass: a\n",
            r"s\.yaml:2: .*none of the choices",
        ),
        ("parameters:\n  a: {default: 3, choices: ['3']}\npipeline:\n  - pass: a\n", "not all of one kind"),
        (
            "pipeline:\n  - pass: a{b=$nr}\n",
            r"s\.yaml:2: .*\$nr is not declared here; .*threads, vector_bits",
        ),
        ("pipeline:\n\t- pass: a\n", r"s\.yaml:2: a tab in the indentation"),
        ("pipeline:\n  - pass: a\n  - pass: [b\n", r"s\.yaml:\d: not YAML"),
        (
            "pipeline:\n  - transform: no.such.module:f\n",
            r"s\.yaml:2: .*there is no module 'no\.such\.module'",
        ),
        ("pipeline:\n  - transform: tile.py:f\n", r"s\.yaml:2: .*there is no file .*tile\.py"),
        ("pipeline:\n  - transform: tile.mlir\n", r"s\.yaml:2: .*cannot read .*tile\.mlir: No such file"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(write: Write, text: str, message: str) -> None:
    path = write("s.yaml", text)
    with pytest.raises(ScheduleError, match=message):
        load_schedule(path, TARGET)


def test_every_wrong_field_is_told_at_once(write: Write) -> None:
    path = write("s.yaml", "description: ''\npipeline:\n  - pas: cse\n  - {pass: cse, bundle: [cse]}\n")
    with pytest.raises(ScheduleError) as raised:
        load_schedule(path, TARGET)
    assert re.findall(r"s\.yaml:(\d+)", str(raised.value)) == ["1", "3", "4"]


def test_a_file_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"none\.yaml: cannot be read: No such file"):
        load_schedule(tmp_path / "none.yaml", TARGET)


# --- includes -----------------------------------------------------------------------------------------


@pytest.mark.spec("L8")
def test_an_include_that_is_not_there_names_those_that_are(write: Write) -> None:
    write("lower.yaml", "pipeline:\n  - pass: cse\n")
    path = write("a/s.yaml", "pipeline:\n  - pass: cse\n  - include: ../lowr.yaml\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:3: .*no file .*lowr\.yaml; did you mean 'lower\.yaml'"):
        load_schedule(path, TARGET)
    path = write("a/s.yaml", "pipeline:\n  - include: ../x/lower.yaml\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:2: .*there is no folder"):
        load_schedule(path, TARGET)


@pytest.mark.spec("L8")
def test_includes_in_a_circle_are_refused_with_the_way_round(write: Write) -> None:
    a = write("a.yaml", "pipeline:\n  - include: b.yaml\n")
    write("b.yaml", "pipeline:\n  - pass: cse\n  - include: sub/c.yaml\n")
    write("sub/c.yaml", "pipeline:\n  - include: ../b.yaml\n")
    with pytest.raises(ScheduleError) as raised:
        load_schedule(a, TARGET)
    text = str(raised.value)
    assert "c.yaml:2" in text.splitlines()[0]
    assert re.search(r"in a circle: \S*/b\.yaml -> \S*/c\.yaml -> \S*/b\.yaml", text)
    assert re.findall(r"included from \S*/(\w+\.yaml:\d+)", text) == ["b.yaml:3", "a.yaml:2"]


def test_a_file_may_include_another_twice(write: Write) -> None:
    write("clean.yaml", "pipeline:\n  - bundle: [cse, canonicalize]\n")
    path = write("s.yaml", "pipeline:\n  - include: clean.yaml\n  - pass: x\n  - include: clean.yaml\n")
    assert names(path) == ["cse", "canonicalize", "x", "cse", "canonicalize"]


@pytest.mark.parametrize(
    "text",
    [
        "pipelin: []\n",
        "pipeline:\n  - pass: a{b=$c}\n",
        "pipeline:\n  - transform: no.module:f\n",
        "\tx: 1\n",
    ],
)
def test_what_is_wrong_in_an_included_file_is_said_with_the_chain(write: Write, text: str) -> None:
    a = write("a.yaml", "pipeline:\n  - include: b.yaml\n")
    write("b.yaml", "pipeline:\n  - pass: cse\n  - include: c.yaml\n")
    write("c.yaml", text)
    with pytest.raises(ScheduleError) as raised:
        load_schedule(a, TARGET)
    first, *rest = str(raised.value).splitlines()
    assert "/c.yaml:" in first
    assert re.findall(r"included from \S*/(\w+\.yaml:\d+)", "\n".join(rest)) == ["b.yaml:3", "a.yaml:2"]


def test_a_condition_on_an_include_is_one_on_each_of_its_steps(write: Write) -> None:
    write("omp.yaml", "pipeline:\n  - pass: a\n  - pass: b\n    when: uses omp\n")
    path = write("s.yaml", "pipeline:\n  - include: omp.yaml\n    when: parallel\n  - pass: c\n")
    schedule = load_schedule(path, Target("x86_64"))
    assert [step.name for step in schedule.steps] == ["c"]
    assert [step.name for step in schedule.written] == ["a", "b", "c"]
    schedule = load_schedule(path, TARGET)
    assert [[each.text for each in step.when] for step in schedule.steps] == [
        ["parallel"],
        ["parallel", "uses omp"],
        [],
    ]


# --- parameters ---------------------------------------------------------------------------------------

TILED = "parameters:\n  mr: {default: 8, choices: [4, 8]}\npipeline:\n  - pass: tile{mr=$mr}\n"


def test_parameters_take_their_defaults_or_what_is_given(write: Write) -> None:
    path = write("s.yaml", TILED)
    assert names(path) == ["tile{mr=8}"]
    assert names(path, mr="4") == ["tile{mr=4}"]
    changed = load_schedule(path, TARGET).with_parameters(mr=4)
    assert [step.name for step in changed.steps] == ["tile{mr=4}"]
    assert changed.values == {"mr": 4}
    assert str(changed) == "s (mr=4)"
    assert [step.name for step in changed.with_parameters().steps] == ["tile{mr=4}"]


def test_a_value_for_what_is_not_declared_is_refused_with_near_names(write: Write) -> None:
    path = write("s.yaml", TILED)
    with pytest.raises(
        ScheduleError, match=r"parameter 'm' is not declared; .*parameters of this schedule: mr"
    ):
        load_schedule(path, TARGET, values={"m": 4})
    with pytest.raises(ScheduleError, match=r"s\.yaml:2: parameters\.mr: mr=5 is none of the choices: 4, 8"):
        load_schedule(path, TARGET).with_parameters(mr=5)


def test_an_includes_options_set_the_parameters_of_its_file_and_hide_them(write: Write) -> None:
    write("tile.yaml", TILED)
    path = write(
        "s.yaml",
        "parameters:\n  rows: {default: 4}\n"
        "pipeline:\n"
        "  - include: tile.yaml\n    options: {mr: $rows}\n"
        "  - include: tile.yaml\n    options: {mr: 8}\n",
    )
    schedule = load_schedule(path, TARGET)
    assert [step.name for step in schedule.steps] == ["tile{mr=4}", "tile{mr=8}"]
    assert schedule.values == {"rows": 4}


def test_parameters_of_an_included_file_can_be_set_from_outside(write: Write) -> None:
    write("tile.yaml", TILED)
    path = write("s.yaml", "pipeline:\n  - include: tile.yaml\n")
    assert names(path, mr=4) == ["tile{mr=4}"]
    assert load_schedule(path, TARGET).values == {"mr": 8}


def test_one_name_declared_again_in_an_included_file_is_one_parameter(write: Write) -> None:
    write("tile.yaml", TILED)
    path = write("s.yaml", "parameters:\n  mr: {default: 4}\npipeline:\n  - include: tile.yaml\n")
    assert names(path) == ["tile{mr=4}"]
    with pytest.raises(ScheduleError) as raised:
        load_schedule(path, TARGET, values={"mr": 5})
    assert re.search(r"tile\.yaml:2: .*mr=5 is none of the choices", str(raised.value))
    assert re.search(r"included from \S*s\.yaml:4", str(raised.value))


def test_an_option_that_the_included_file_does_not_have_is_refused(write: Write) -> None:
    write("tile.yaml", TILED)
    path = write("s.yaml", "pipeline:\n  - include: tile.yaml\n    options: {nr: 8}\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:3: .*has no parameter 'nr'; .*its parameters: mr"):
        load_schedule(path, TARGET)


def test_a_file_sees_only_the_names_that_it_declares(write: Write) -> None:
    write("b.yaml", "pipeline:\n  - pass: x{mr=$mr}\n")
    path = write("s.yaml", "parameters:\n  mr: {default: 4}\npipeline:\n  - include: b.yaml\n")
    with pytest.raises(ScheduleError, match=r"b\.yaml:2: .*\$mr is not declared here"):
        load_schedule(path, TARGET)


def test_several_files_follow_one_another_and_share_their_parameters(write: Write) -> None:
    first = write("first.yaml", "description: one\n" + TILED)
    second = write("second.yaml", "description: two\n" + TILED)
    schedule = load_schedule([first, second], TARGET, values={"mr": 4})
    assert [step.name for step in schedule.steps] == ["tile{mr=4}", "tile{mr=4}"]
    assert schedule.name == "first then second"
    assert schedule.description == "one; then: two"


def test_provenance_is_kept_for_readers(write: Write) -> None:
    path = write("s.yaml", "provenance: {tuned: 2026-11-29, trials: 40}\npipeline:\n  - pass: cse\n")
    assert dict(load_schedule(path, TARGET).provenance) == {"tuned": "2026-11-29", "trials": 40}


# --- transforms ---------------------------------------------------------------------------------------


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("tile.py:pac\n", r"has no function 'pac'; did you mean 'pack'\? transforms there: pack"),
        ("tile.py:NUMBER\n", "NUMBER is 3, which is no function"),
        ("tile.py:pack\n", r"tile\.py:pack needs mr; give mr under 'options'"),
        ("tile.py:pack\n    options: {mr: 8, nrr: 2}\n", r"has no parameter 'nrr'; did you mean 'nr'"),
        ("tile.py:pack\n    options: {mr: 8, target: 2}\n", "has no parameter 'target'"),
        ("tile.py:no_target\n    options: {mr: 8}\n", "takes no 'target'"),
        ("tile.py:no_module\n", "takes no module"),
    ],
)
def test_a_transform_that_does_not_fit_is_refused(write: Write, step: str, message: str) -> None:
    write("tile.py", TRANSFORM)
    path = write("s.yaml", f"pipeline:\n  - transform: {step}")
    with pytest.raises(ScheduleError, match=rf"s\.yaml:2: .*{message}"):
        load_schedule(path, TARGET)


def test_a_transform_may_take_any_options(write: Write) -> None:
    write("tile.py", TRANSFORM)
    path = write("s.yaml", "pipeline:\n  - transform: tile.py:anything\n    options: {a: 1, b: x}\n")
    assert names(path)[0].endswith("tile.py:anything(a=1, b=x)")


def test_a_changed_file_of_transforms_is_read_again(write: Write) -> None:
    write("tile.py", TRANSFORM)
    path = write("s.yaml", "pipeline:\n  - transform: tile.py:later\n")
    with pytest.raises(ScheduleError, match="has no function 'later'"):
        load_schedule(path, TARGET)
    write("tile.py", TRANSFORM + "\ndef later(module, *, target):\n    pass\n")
    assert names(path)[0].endswith("tile.py:later")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", r"tile\.mlir:2 has \$\{nr\}, which nothing gives a value; .*options and parameters here: .*mr"),
        ("    options: {nr: 8, kr: 1}\n", r"tile\.mlir has no \$\{kr\}; .*names there: "),
    ],
)
def test_the_names_of_a_transform_file_must_have_values_and_all_be_used(
    write: Write, options: str, message: str
) -> None:
    write("tile.mlir", "// ${mr}\n// ${nr}\n")
    path = write(
        "s.yaml", f"parameters:\n  mr: {{default: 4}}\npipeline:\n  - transform: tile.mlir\n{options}"
    )
    with pytest.raises(ScheduleError, match=rf"s\.yaml:4: .*{message}"):
        load_schedule(path, TARGET)


def test_a_module_whose_own_import_fails_is_not_taken_for_a_missing_one(write: Write) -> None:
    write("broken.py", "import no_such_library\ndef f(module, *, target):\n    pass\n")
    path = write("s.yaml", "pipeline:\n  - transform: broken.py:f\n")
    with pytest.raises((ScheduleError, ModuleNotFoundError), match="no_such_library"):
        load_schedule(path, TARGET)


def test_options_that_are_no_references_keep_their_types(write: Write) -> None:
    write("tile.py", TRANSFORM)
    options: dict[str, Any] = {"a": 1, "b": True, "c": "x", "d": [1, [2, 3]], "e": 0.5}
    text = "{a: 1, b: true, c: x, d: [1, [2, 3]], e: 0.5}"
    path = write("s.yaml", f"pipeline:\n  - transform: tile.py:anything\n    options: {text}\n")
    step = load_schedule(path, TARGET).steps[0]
    assert isinstance(step, TransformStep)
    assert step.parameters == {**options, "d": (1, (2, 3))}
