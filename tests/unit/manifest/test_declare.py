# ruff: noqa: E501 - a table of cases reads best with one case a line
"""The rules that span the fields of one op."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.manifest import Manifest

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
        ("[B, M, K]", "[B, M, 'K*sizeof(U)']", f"9: {OP}.inputs.a.shape.2: expression 'K*sizeof(U)', column 10: 'U' is none of the dtype variables"),
        ("[B, M, K]", "[B, M, 'K*present(b)']", f"9: {OP}.inputs.a.shape.2: expression 'K*present(b)', column 11: 'b' is none of the optional inputs; optional inputs: bias"),
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
