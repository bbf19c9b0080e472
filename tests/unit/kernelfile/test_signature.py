"""The parser of ``solve(...)``: every type of the list, and a clear error for what it cannot vouch for."""

from __future__ import annotations

import contextlib
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.kernelfile import parse_signature
from kernelmark.kernelfile.signature import find_type, number

INTEGERS = {
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "long long unsigned int": "uint64",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "std::int16_t": "int16",
    "std::uint16_t": "uint16",
    "int32_t": "int32",
    "uint32_t": "uint32",
    "::std::int64_t": "int64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "std::size_t": "uint64",
}
FLOATS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "cutlass::half_t": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "cutlass::bfloat16_t": "bfloat16",
}
TYPES = {**INTEGERS, **FLOATS, "bool": "bool"}


def parse(parameters: str, before: str = ""):
    return parse_signature(f'{before}\nextern "C" void solve({parameters}) {{}}', "k.cu").parameters


@pytest.mark.spec("K7")
@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_pointers_and_scalars_of_every_listed_type_are_read(name: str, dtype: str) -> None:
    source, target, scalar = parse(f"const {name}* a, {name} *b, {name} c")
    assert {each.type.dtype for each in (source, target, scalar)} == {dtype}
    assert [each.pointer for each in (source, target, scalar)] == [True, True, False]
    assert [each.is_output for each in (source, target, scalar)] == [False, True, False]


@pytest.mark.parametrize(
    ("parameter", "const"),
    [
        ("float* constants", False),
        ("float* const x", False),
        ("float* __restrict__ const x", False),
        ("const float* x", True),
        ("float const* x", True),
        ("float const * const __restrict__ x", True),
        ("const float x[]", True),
        ("float x[]", False),
    ],
)
def test_const_is_a_qualifier_of_what_is_pointed_to_and_no_part_of_a_name(
    parameter: str, const: bool
) -> None:
    found = parse(f"{parameter}, float* other")[0]
    assert found.const is const


@pytest.mark.parametrize(
    "source",
    [
        '// extern "C" void solve(int* no)\nextern "C" void solve(float* x);',
        '/* void solve(int* no) */ extern "C" void solve(float /* in */ *x // here\n );',
        'const char* s = "extern \\"C\\" void solve(int*)"; extern "C" void solve(float* x) {}',
        'extern "C" { void helper(int* y); void solve(float* x) { helper(nullptr); } }',
        '#if 0\nextern "C" void solve(int* no);\n#else\nextern "C" void solve(float* x);\n#endif',
        'extern "C" __attribute__((visibility("default"))) void solve(float* x) {}',
        'extern "C" void solve(float* x);\nextern "C" void solve(float* x) {}',
        'namespace inner { void solve_it(int*); } extern "C" void solve(float* x) {}',
        'template <typename T> void solve_any(T*); extern "C" void solve(float* x) {}',
    ],
)
def test_solve_is_found_among_comments_texts_blocks_and_attributes(source: str) -> None:
    (parameter,) = parse_signature(source, "k.cu").parameters
    assert (parameter.name, parameter.type.dtype, parameter.is_output) == ("x", "float32", True)


def test_the_file_s_own_names_for_types_are_followed() -> None:
    before = "using Element = cutlass::half_t; typedef const float* In; typedef Element Out;"
    first, second = parse("In a, Out* b", before)
    assert (first.type.dtype, first.pointer, first.const) == ("float32", True, True)
    assert (second.type.dtype, second.pointer, second.const) == ("float16", True, False)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("int x;", "has no solve()"),
        ("void solve(float* x) {}", 'not extern "C"'),
        ('extern "C" void solve(ARGS) {}', "ARGS"),
        ('extern "C" void solve(float * RESTRICT x) {}', "macro"),
        ('extern "C" void solve(TYPE* x) {}', "not known"),
        ('extern "C" EXPORT void solve(float* x) {}', "macro"),
        ('extern "C" void solve(void* x) {}', "not known"),
        ('extern "C" void solve(float** x) {}', "pointer to pointers"),
        ('extern "C" void solve(float& x) {}', "references"),
        ('extern "C" void solve(float (*x)[4]) {}', "no value, pointer or array"),
        ('extern "C" void solve(float*) {}', "name"),
        ('extern "C" void solve(float* x, ...) {}', "variable number"),
        ('extern "C" void solve(float* x, int x) {}', "twice"),
        ('extern "C" int solve(float* x) {}', "must return void|write void"),
        ('extern "C" float* solve(float* x) {}', "returns"),
        ('extern "C" void solve(const float* a, const float* b) {}', "every pointer of solve\\(\\) is const"),
        ('extern "C" void solve(int n) {}', "no output"),
        ('extern "C" void solve(float* x, _Float16 h) {}', "by value"),
        ('extern "C" void solve(float* x,\n#ifdef A\nint n\n#endif\n) {}', "macro"),
        (
            '#ifdef A\nextern "C" void solve(float* x);\n#else\nextern "C" void solve(int* x);\n#endif',
            "several",
        ),
        ("using A = B; using B = A; extern \"C\" void solve(A* x) {}", "not known"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_an_error_with_the_file(source: str, told: str) -> None:
    with pytest.raises(UsageError, match=told if "\\" in told or "|" in told else None) as raised:
        parse_signature(source, "k.cu")
    assert "k.cu" in str(raised.value)
    assert "\\" in told or "|" in told or told in str(raised.value)


def test_plain_c_needs_no_linkage() -> None:
    assert parse_signature("void solve(float* x) {}", "k.c", plain_c=True).outputs[0].name == "x"


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_signature(f'extern "C" void solve({text}) {{}}', "k.cu")


@given(
    st.lists(st.tuples(st.sampled_from(sorted(TYPES)), st.booleans(), st.booleans()), min_size=1, max_size=8)
)
def test_every_list_of_known_parameters_comes_back_in_order(kinds: list[tuple[str, bool, bool]]) -> None:
    texts = [
        f"{'const ' if const else ''}{name}{'*' if pointer else ''} p{i}"
        for i, (name, pointer, const) in enumerate(kinds)
    ]
    found = parse(", ".join([*texts, "float* last"]))
    assert [each.name for each in found] == [*(f"p{i}" for i in range(len(kinds))), "last"]
    assert [each.type.dtype for each in found[:-1]] == [TYPES[name] for name, _, _ in kinds]
    assert [each.pointer for each in found[:-1]] == [pointer for _, pointer, _ in kinds]


# --- types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024), ("0x10", 16), ("-3", -3), ("2^10", 1024), ("1e3", 1000.0), ("0.5", 0.5),
        ("true", True), ("False", False), ("float16", "float16"), ("007", 7),
    ],
)  # fmt: skip
def test_a_value_is_a_number_where_it_reads_as_one(text: str, value: object) -> None:
    assert number(text) == value
    assert type(number(text)) is type(value)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("int8_t", -128, 127), ("uint8_t", 0, 255), ("int", -(2**31), 2**31 - 1),
        ("unsigned", 0, 2**32 - 1), ("long long", -(2**63), 2**63 - 1), ("size_t", 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_integers_are_checked_for_their_range(name: str, low: int, high: int) -> None:
    ctype = find_type(name)
    assert ctype is not None
    for value in (low, high):
        assert ctype.parse(str(value), "n") == value
        assert ctype.pass_by_value(value).value == value
    for value in (low - 1, high + 1):
        with pytest.raises(UsageError, match=f"from {low} to {high}"):
            ctype.parse(str(value), "n")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("int", "1.5", "whole number"), ("int", "many", "give a number"), ("bool", "2", "true, false"),
        ("half", "70000", "65504"), ("float", "1e39", "up to"), ("float", "x", "give a number"),
        ("int", "true", "give a number"),
    ],
)  # fmt: skip
def test_what_is_no_such_number_is_refused(name: str, text: str, told: str) -> None:
    ctype = find_type(name)
    assert ctype is not None
    with pytest.raises(UsageError, match=told):
        ctype.parse(text, "n")


@given(st.floats(min_value=-65504, max_value=65504, width=32))
def test_16_bit_floats_are_handed_over_as_torch_rounds_them(value: float) -> None:
    for name, dtype in (("half", torch.float16), ("__nv_bfloat16", torch.bfloat16)):
        ctype = find_type(name)
        assert ctype is not None
        expected = torch.tensor(value, dtype=torch.float32).to(dtype).view(torch.int16).item()
        assert struct.pack("<H", ctype.pass_by_value(value).bits) == struct.pack("<h", expected)


def test_the_order_of_words_does_not_matter_and_unknown_names_are_none() -> None:
    assert find_type("long unsigned int") == find_type("unsigned long")
    assert find_type("short int") == find_type("short")
    assert find_type("Tensor") is None
