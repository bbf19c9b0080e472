from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.files.source import parse_source
from kernelmark.manifest.schema import read_schema

OP = "ops.BmmFwdOp"


def test_a_valid_file_has_no_problems(gemm: str) -> None:
    family, problems = read_schema(parse_source(gemm, "gemm.yaml"))
    assert problems == []
    assert family is not None
    assert list(family.ops["BmmFwdOp"].inputs) == ["a", "b", "lengths", "bias"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("family: gemm", "famly: gemm", "1: famly: unknown field 'famly'; did you mean 'family'?"),
        ("family: gemm", "family: 3", '1: family: expected text, got an int; quote it if text is meant: "3"'),
        ("family: gemm", "family: on-off", "1: family: 'on-off' cannot be a name"),
        (
            "family: gemm",
            "family: true",
            '1: family: expected text, got a bool; quote it if the word is meant: "true"',
        ),
        ("  BmmFwdOp:", "  Bmm-Op:", "3: ops.Bmm-Op: 'Bmm-Op' cannot be a name"),
        ("    summary: Batched matrix product.\n", "", f"3: {OP}: required field 'summary' is missing"),
        ("summary: Batched matrix product.", "summary: '  '", f"4: {OP}.summary: blank"),
        ("summary: Batched matrix product.", "summary:", f"4: {OP}.summary: nothing stands here"),
        (
            "T: [float16, bfloat16, float32]",
            "T: [fp16]",
            f"6: {OP}.dtypes.T.0: 'fp16' is no dtype; write 'float16'",
        ),
        ("T: [float16, bfloat16, float32]", "T: []", f"6: {OP}.dtypes.T: empty"),
        (
            "T: [float16, bfloat16, float32]",
            "T: float16",
            f"6: {OP}.dtypes.T: expected a list, got text 'float16'",
        ),
        (
            "a: {dtype: T, ",
            "a: {type: T, ",
            f"9: {OP}.inputs.a.type: unknown field 'type'; did you mean 'dtype'?",
        ),
        (
            "shape: [B, M, K]",
            "shape: [B, M, K], optional: yes",
            f"9: {OP}.inputs.a.optional: expected true or false",
        ),
        (
            "shape: [B, M, K]",
            "shape: [B, [M], K]",
            f"9: {OP}.inputs.a.shape.1: expected a number or an expression, got a list",
        ),
        (
            "shape: [B, M, K]",
            "shape: [B, true, K]",
            f"9: {OP}.inputs.a.shape.1: expected a number or an expression, got a bool",
        ),
        ("a: {dtype: T, ", "in: {dtype: T, ", f"9: {OP}.inputs.in: 'in' cannot be a name"),
        (
            "lengths: {dtype: I, shape: [B]}",
            "lengths: [B]",
            f"11: {OP}.inputs.lengths: expected a mapping, got a list",
        ),
        (
            "c: {dtype: T, ",
            "c: {optional: true, dtype: T, ",
            f"14: {OP}.outputs.c.optional: unknown field 'optional'",
        ),
        (
            "alpha: {type: float",
            "alpha: {type: number",
            f"17: {OP}.params.alpha.type: 'number' is not one of 'int', 'float', 'bool' or 'str'",
        ),
        ("choices: [fast, exact]", "choices: []", f"18: {OP}.params.mode.choices: empty"),
        ("default: false", "default: null", f"16: {OP}.params.transpose_b.default: nothing stands here"),
        (
            "default: false",
            "default: [1]",
            f"16: {OP}.params.transpose_b.default: expected a number, text or bool, got a list",
        ),
        ("mutates: [a]", "mutates: a", f"20: {OP}.effects.mutates: expected a list, got text 'a'"),
        ("aliases: {c: a}", "aliases: [c]", f"21: {OP}.effects.aliases: expected a mapping, got a list"),
        (
            "tuned: true",
            "tuned: {}",
            f"22: {OP}.arguments.tuned: expected a number, text or bool, got a mapping",
        ),
        ('      flops: "2*B*M*N*K"\n', "", f"23: {OP}.roofline: 'flops' missing"),
        (
            "compute: T",
            "function: a:b",
            f"23: {OP}.roofline: 'function' and 'flops' and 'bytes'; write one form",
        ),
        ("compute: T", "compute: T\n      <<: {}", f"27: {OP}.roofline.<<: merge keys are not read"),
        (
            "label: llama3-8b-scores",
            "label: a/b",
            f"28: {OP}.workloads.0.label: 'a/b' cannot be part of a test id",
        ),
        (
            "label: llama3-8b-scores",
            "label: 5",
            f"28: {OP}.workloads.0.label: expected text, got an int; quote it",
        ),
        ("label: llama3-8b-scores", "label: 'ä'", f"28: {OP}.workloads.0.label: 'ä' cannot be part"),
        ('source: "GPT-2"', "source: ''", f"35: {OP}.workloads.1.source: blank"),
        ('        source: "GPT-2"\n', "", f"34: {OP}.workloads.1: required field 'source' is missing"),
        ("{B: 32, ", "{B: -1, ", f"30: {OP}.workloads.0.dims.B: -1 is negative; give 0 or more"),
        ("{B: 32, ", "{B: 2.0, ", f"30: {OP}.workloads.0.dims.B: expected an int, got a float"),
        (
            "{B: 32, ",
            "{B: 1_0, ",
            f"30: {OP}.workloads.0.dims.B: expected an int, got text '1_0'; write plain digits",
        ),
        ("{B: 32, ", "{B: true, ", f"30: {OP}.workloads.0.dims.B: expected an int, got a bool"),
        ("dtypes: [{T: float32, I: int32}]", "dtypes: []", f"37: {OP}.workloads.1.dtypes: empty"),
        (
            "dtypes: [{T: float32, I: int32}]",
            "dtypes: {T: float32}",
            f"37: {OP}.workloads.1.dtypes: expected a list, got a mapping",
        ),
        (
            "{T: float32, I: int32}",
            "{T: torch.float32, I: int32}",
            f"37: {OP}.workloads.1.dtypes.0.T: 'torch.float32' is no dtype; write 'float32'",
        ),
        ("with: [bias]", "with: bias", f"33: {OP}.workloads.0.with: expected a list, got text 'bias'"),
    ],
)
def test_a_wrong_field_is_named_by_file_line_and_field(
    spoiled: Callable[[str, str], list[str]], old: str, new: str, expected: str
) -> None:
    problems = spoiled(old, new)
    assert any(problem.startswith(f"gemm.yaml:{expected}") for problem in problems), problems


def test_a_roofline_function_must_be_a_module_and_a_name() -> None:
    text = "family: f\nops:\n  XOp:\n    roofline: {function: 'os.system(1)'}\n"
    _, problems = read_schema(parse_source(text, "f.yaml"))
    assert any("ops.XOp.roofline.function: 'os.system(1)' names no function" in str(p) for p in problems)


def test_all_problems_of_a_file_are_found_in_its_order(spoiled: Callable[[str, str], list[str]]) -> None:
    problems = spoiled(
        "family: gemm\nops:\n  BmmFwdOp:\n    summary: B", "family: 3\nops:\n  BmmFwdOp:\n    summry: B"
    )
    assert [problem.partition(": ")[0] for problem in problems] == ["gemm.yaml:1", "gemm.yaml:4"]


@pytest.mark.parametrize("text", ["[]", "3", "text", "family: f", "family: f\nops: {}", "family: f\nops: []"])
def test_a_file_of_another_kind_is_an_error(text: str) -> None:
    family, problems = read_schema(parse_source(text, "f.yaml"))
    assert family is None
    assert problems
