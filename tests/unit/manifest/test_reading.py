# ruff: noqa: E501 - a table of cases reads best with one case a line
"""The rules that span the fields of one op."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import ManifestError
from kernelmark.manifest import Manifest, load_manifest, read_manifest
from kernelmark.manifest.reading import typed


def test_ops_come_in_the_order_of_file_names_then_of_the_files(tmp_path: Path, gemm: str) -> None:
    op = gemm.partition("ops:\n")[2]
    second = gemm + op.replace("BmmFwdOp", "AaaOp")
    (tmp_path / "b.yaml").write_text(second)
    (tmp_path / "a.yml").write_text(gemm.replace("gemm", "other").replace("BmmFwdOp", "ZzzOp"))
    (tmp_path / ".c.yaml").write_text("not: read")
    (tmp_path / "notes.txt").write_text("not read")
    assert list(load_manifest(tmp_path).ops) == ["ZzzOp", "BmmFwdOp", "AaaOp"]


def test_an_op_in_two_files_is_refused_with_both_places(folder: Path, gemm: str) -> None:
    (folder / "later.yaml").write_text(gemm.replace("family: gemm", "family: later"))
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    assert str(caught.value).startswith(
        f"{folder}/later.yaml:3: ops.BmmFwdOp: op 'BmmFwdOp' is already declared in "
    )
    assert "gemm.yaml:3" in str(caught.value)


def test_a_family_in_two_files_is_refused_with_both_places(folder: Path, gemm: str) -> None:
    (folder / "later.yaml").write_text(gemm.replace("BmmFwdOp", "OtherOp"))
    with pytest.raises(
        ManifestError, match=r"later\.yaml:1: family: family 'gemm' is already declared in .*:1"
    ):
        load_manifest(folder)


def test_one_problem_is_raised_as_it_is(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("family: gemm", "family: 3"))
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    assert (caught.value.path, caught.value.line, caught.value.field) == (
        str(folder / "gemm.yaml"),
        1,
        "family",
    )
    assert "\n" not in str(caught.value)


def test_several_problems_are_all_in_the_message_and_the_first_gives_the_place(
    folder: Path, gemm: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("family: gemm", "family: 3"))
    (folder / "x.yaml").write_text("a: 1\na: 2")
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{folder}/gemm.yaml:1: family: ")
    assert second.startswith(f"{folder}/x.yaml:2: a: duplicate key")
    assert caught.value.line == 1


def test_a_flood_of_problems_is_cut_and_says_so(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"f{i:02}.yaml").write_text("[")
    with pytest.raises(ManifestError) as caught:
        load_manifest(tmp_path)
    assert str(caught.value).splitlines()[-1] == "and 9 more"


def test_the_ops_of_whole_files_are_there_beside_the_problems_of_others(folder: Path) -> None:
    (folder / "x.yaml").write_text("a: 1\na: 2")
    manifest, problems = read_manifest(folder)
    assert list(manifest.ops) == ["BmmFwdOp"]
    assert len(problems) == 1


def test_a_missing_folder_an_empty_one_and_a_file_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "README.md").write_text("no manifest")
    for folder, message in (
        (tmp_path / "none", "no such folder"),
        (file, "this is a file"),
        (empty, "no .yaml file"),
    ):
        with pytest.raises(ManifestError, match=message) as caught:
            load_manifest(folder)
        assert caught.value.path == str(folder)


def test_a_dangling_link_is_named(folder: Path) -> None:
    (folder / "x.yaml").symlink_to(folder / "nowhere.yaml")
    with pytest.raises(ManifestError, match=r"x\.yaml: cannot be read: No such file"):
        load_manifest(folder)


OP = "ops.BmmFwdOp"


def test_the_dimensions_are_the_names_in_shapes_that_are_no_parameters(manifest: Manifest) -> None:
    assert manifest.op("BmmFwdOp").dims == ("B", "M", "K", "N")


def test_a_default_is_stored_with_its_parameters_type(manifest: Manifest) -> None:
    defaults = {param.name: param.default for param in manifest.op("BmmFwdOp").params}
    assert defaults == {"transpose_b": False, "alpha": 1.0, "mode": None}
    assert type(defaults["alpha"]) is float


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a: {dtype: T,", "a: {dtype: t,", f"9: {OP}.inputs.a.dtype: 't' is no dtype variable and no dtype; did you mean 'T'?"),
        ("c: {dtype: T,", "c: {dtype: flaot16,", f"14: {OP}.outputs.c.dtype: 'flaot16' is no dtype variable and no dtype; did you mean 'float16'"),
        ("[B, M, K]", "[B, M, 2*T]", f"9: {OP}.inputs.a.shape.2: expression '2*T', column 3: 'T' is a dtype, not a size"),
        ("[B, M, K]", "[B, M, float16]", f"9: {OP}.inputs.a.shape.2: expression 'float16', column 1: 'float16' is a dtype"),
        ("[B, M, K]", "[B, M, 'K //']", f"9: {OP}.inputs.a.shape.2: expression 'K //', column 4: not an expression"),
        ("[B, M, K]", "[B, M, 'K*sizeof(U)']", f"9: {OP}.inputs.a.shape.2: expression 'K*sizeof(U)', column 10: 'U' is not known; dtype variables"),
        ("[B, M, K]", "[B, M, 'K*present(b)']", f"9: {OP}.inputs.a.shape.2: expression 'K*present(b)', column 11: 'b' is not known; optional inputs: bias"),
        ("      I: [int32", "      float16: [int32", f"7: {OP}.dtypes.float16: 'float16' is already a dtype"),
        ("      alpha: {", "      T: {", f"17: {OP}.params.T: 'T' is already a dtype variable"),
        ("      alpha: {", "      bias: {", f"17: {OP}.params.bias: 'bias' is already an input"),
        ("      alpha: {", "      c: {", f"17: {OP}.params.c: 'c' is already an output"),
        ("      c: {dtype", "      a: {dtype", f"14: {OP}.outputs.a: 'a' is already an input; choose another name and say in effects.aliases"),
        ("default: 1}", "default: one}", f"17: {OP}.params.alpha.default: expected float, got text 'one'"),
        ("default: false}", "default: off}", f"16: {OP}.params.transpose_b.default: expected bool, got text 'off'; write true or false, unquoted"),
        ("[fast, exact]", "[fast, 3]", f"18: {OP}.params.mode.choices.1: expected str, got an int 3; quote it: \"3\""),
        ("[fast, exact]", "[fast, true]", f"18: {OP}.params.mode.choices.1: expected str, got a bool True; quote it: \"true\""),
        ("[fast, exact]", "[fast, exact], default: exat", f"18: {OP}.params.mode.default: 'exat' is not among the choices"),
        ("mutates: [a]", "mutates: [A]", f"20: {OP}.effects.mutates.0: 'A' is none of the op's inputs; did you mean 'a'?"),
        ("mutates: [a]", "mutates: [c]", f"20: {OP}.effects.mutates.0: 'c' is none of the op's inputs"),
        ("mutates: [a]", "mutates: [a, a]", f"20: {OP}.effects.mutates.1: 'a' is named twice"),
        ("mutates: [a]", "mutates: [a]\n      writes: [a]", f"21: {OP}.effects.writes.0: 'a' is named twice"),
        ("aliases: {c: a}", "aliases: {d: a}", f"21: {OP}.effects.aliases.d: 'd' is none of the op's outputs; outputs: c"),
        ("aliases: {c: a}", "aliases: {c: x}", f"21: {OP}.effects.aliases.c: 'x' is none of the op's inputs"),
        ('rows: B*M', 'rows: B*H', f"22: {OP}.arguments.rows: expression 'B*H', column 3: 'H' is not known"),
        ("dtype: T, transpose_b", "dtype: t, transpose_b", f"22: {OP}.arguments.dtype: expression 't', column 1: 't' is not known; did you mean 'T'?"),
        ('flops: "2*B', 'flops: "2*b', f"24: {OP}.roofline.flops: expression '2*b*M*N*K', column 3: 'b' is not known; did you mean 'B'?"),
        ("compute: T", "compute: fp16", f"26: {OP}.roofline.compute: 'fp16' is no dtype"),
        ("lengths: {dtype: I", "lengths: {dtype: int32", f"7: {OP}.dtypes.I: dtype variable 'I' is used by no tensor"),
        ("type: float", "type: str", f"17: {OP}.params.alpha.default: expected str, got an int 1; quote it: \"1\""),
    ],
)  # fmt: skip
def test_a_name_that_does_not_fit_the_others_is_named_with_its_place(
    spoiled: Callable[[str, str], list[str]], old: str, new: str, expected: str
) -> None:
    problems = spoiled(old, new)
    assert any(problem.startswith(f"gemm.yaml:{expected}") for problem in problems), problems


def test_an_op_without_outputs_or_effects_does_nothing_and_is_refused(
    spoiled: Callable[[str, str], list[str]],
) -> None:
    old = '      c: {dtype: T, shape: [B, M, "2*N // 2"]}\n'
    problems = spoiled(f"outputs:\n{old}", "outputs: {}\n")
    assert not any("does nothing" in problem for problem in problems)  # it still mutates an input
    problems = spoiled(
        f"outputs:\n{old}    params:\n      transpose_b: {{type: bool, default: false}}\n"
        "      alpha: {type: float, default: 1}\n      mode: {type: str, choices: [fast, exact]}\n"
        "    effects:\n      mutates: [a]\n      aliases: {c: a}\n",
        "outputs: {}\n",
    )
    assert any("no outputs, and no input is written: the op does nothing" in problem for problem in problems)


def test_several_problems_of_one_op_are_found_in_one_reading(
    spoiled: Callable[[str, str], list[str]],
) -> None:
    problems = spoiled("mutates: [a]\n      aliases: {c: a}", "mutates: [x]\n      aliases: {y: z}")
    assert len(problems) == 3


ROWS = "ops.BmmFwdOp.workloads"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("label: plain", "label: llama3-8b-scores", f"34: {ROWS}.1.label: label 'llama3-8b-scores' is taken by the row on line 28"),
        ("{B: 2, M: 3,", "{B: 2, M: 3, H: 3,", f"36: {ROWS}.1.dims.H: 'H' is in no tensor's shape; dimensions: B, M, K, N"),
        ("{B: 2, M: 3,", "{B: 2, m: 3,", f"36: {ROWS}.1.dims.m: 'm' is in no tensor's shape; did you mean 'M'?"),
        ("{B: 2, M: 3,", "{B: 2, alpha: 3, M: 3,", f"36: {ROWS}.1.dims.alpha: 'alpha' is in no tensor's shape; it is a parameter, so it goes under 'params'"),
        ("{B: 2, M: 3, N: 5, K: 7}", "{B: 2, M: 3, N: 5}", f"36: {ROWS}.1.dims: dimension 'K' has no size; it is in the shape of a, b"),
        ("{T: float32, I: int32}", "{T: float32}", f"37: {ROWS}.1.dtypes.0: dtype variable I has no dtype in this case"),
        ("{T: float32, I: int32}", "{T: float32, i: int32}", f"37: {ROWS}.1.dtypes.0.i: 'i' is no dtype variable; did you mean 'I'?"),
        ("{T: float32, I: int32}", "{T: float32, I: int32}, {I: int32, T: float32}", f"37: {ROWS}.1.dtypes.1: this dtype case is in the row already"),
        ("{mode: exact, alpha: 0.5}", "{mode: exact, beta: 0.5}", f"38: {ROWS}.1.params.beta: 'beta' is no parameter"),
        ("{mode: exact, alpha: 0.5}", "{alpha: 0.5}", f"38: {ROWS}.1.params: parameter 'mode' has no default, so the row must give it"),
        ("{mode: exact, alpha: 0.5}", "{mode: slow}", f"38: {ROWS}.1.params.mode: 'slow' is not among the choices 'fast', 'exact'"),
        ("{mode: exact, alpha: 0.5}", "{mode: exact, alpha: x}", f"38: {ROWS}.1.params.alpha: expected float, got text 'x'"),
        ("{transpose_b: true,", "{transpose_b: yes,", f"32: {ROWS}.0.params.transpose_b: expected bool, got text 'yes'; write true or false"),
        ("with: [bias]", "with: [b]", f"33: {ROWS}.0.with.0: 'b' is no optional input; optional inputs: bias"),
        ("with: [bias]", "with: [bias, bias]", f"33: {ROWS}.0.with.1: 'bias' is given twice"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_its_op_is_named_with_its_place(
    spoiled: Callable[[str, str], list[str]], old: str, new: str, expected: str
) -> None:
    problems = spoiled(old, new)
    assert any(problem.startswith(f"gemm.yaml:{expected}") for problem in problems), problems


def test_a_row_without_dtypes_lacks_one_for_each_variable(spoiled: Callable[[str, str], list[str]]) -> None:
    assert any("T, I has no dtype" in p for p in spoiled("        dtypes: [{T: float32, I: int32}]\n", ""))


def test_a_dimension_that_only_an_absent_input_has_need_not_be_bound(
    spoiled: Callable[[str, str], list[str]],
) -> None:
    wider = "bias: {dtype: T, shape: [N, H], optional: true}"
    problems = spoiled("bias: {dtype: T, shape: [N], optional: true}", wider)
    expected = "dimension 'H' has no size; it is in the shape of bias"
    assert [expected in problem for problem in problems] == [
        True
    ]  # the first row gives bias, the second does not


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [(3, "int", 3), (3, "float", 3.0), (0.5, "float", 0.5), (True, "bool", True), ("x", "str", "x")],
)
def test_a_value_of_the_type_is_taken(value: object, kind: str, expected: object) -> None:
    found, problem = typed(value, kind)
    assert problem is None
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "int"), (True, "float"), (1, "bool"), (3.0, "int"), ("3", "int"), (3, "str"), ("true", "bool")],
)
def test_a_value_of_another_type_is_never_converted(value: object, kind: str) -> None:
    assert typed(value, kind)[1] is not None
