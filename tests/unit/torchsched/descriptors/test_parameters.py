"""Parameters keep the kind of their default, and references are filled in with their own type where they can be."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmark.errors import ScheduleError
from kernelmark.files.source import Place
from torchsched.descriptors.parameters import Parameter, fill_in, fill_in_text, names_in, written
from torchsched.descriptors.schema import SCHEDULE


def parameter(default: Any, *choices: Any) -> Parameter:
    return Parameter("p", default, default, choices, "", Place("s.yaml", 3, "parameters.p", SCHEDULE))


@pytest.mark.parametrize(
    ("default", "given", "value"),
    [
        (8, "4", 4),
        (8, 4, 4),
        (0.5, "2", 2.0),
        (0.5, 1, 1.0),
        (True, "false", False),
        ("outer", "inner", "inner"),
        ("8", "4", "4"),
        ((1, 8), "[4, 16]", (4, 16)),
        ((1, 8), "4,16", (4, 16)),
        ((1, 8), [4, 16], (4, 16)),
    ],
)
def test_text_is_read_as_the_default_would_be(default: Any, given: Any, value: Any) -> None:
    found = parameter(default).with_value(given).value
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("default", "given", "message"),
    [
        (8, "four", r"s\.yaml:3: parameters\.p: p=four: expected an int such as 8, got text"),
        (8, 4.5, "expected an int such as 8, got a float"),
        (8, True, "expected an int such as 8, got a bool"),
        (True, 1, "expected a bool such as true, got an int"),
        ((1, 8), "4", "expected a list such as 1,8, got an int"),
        ("x", 3, "expected text such as x, got an int"),
        (8, "[", "expected an int"),
    ],
)
def test_a_value_of_another_kind_is_refused_at_the_declaration(
    default: Any, given: Any, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        parameter(default).with_value(given)


def test_a_value_that_is_no_choice_is_refused_with_the_choices() -> None:
    with pytest.raises(ScheduleError, match=r"p=5 is none of the choices: 4, 6, 8"):
        parameter(8, 4, 6, 8).with_value("5")
    with pytest.raises(ScheduleError, match=r"p=1,2 is none of the choices: 1,8, 2,8"):
        parameter((1, 8), (1, 8), (2, 8)).with_value("1,2")


def test_one_is_not_true_among_choices() -> None:
    assert parameter(True, True, False).with_value(False).value is False
    with pytest.raises(ScheduleError):
        parameter(1, 1, 0).with_value(True)


VALUES = {"mr": 8, "tiles": (1, 8), "fast": True, "name": "x"}


def unknown(name: str) -> Exception:
    return KeyError(name)


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("$mr", 8),
        ("${mr}", 8),
        ("$tiles", (1, 8)),
        ("$fast", True),
        (["$mr", 32], (8, 32)),
        ("m$mr", "m8"),
        ("${mr}x${tiles}", "8x1,8"),
        (3, 3),
        ("plain", "plain"),
    ],
)
def test_a_reference_alone_keeps_the_type_of_its_value(value: Any, filled: Any) -> None:
    assert fill_in(value, VALUES, unknown) == filled
    assert type(fill_in(value, VALUES, unknown)) is type(filled)


def test_a_name_that_nothing_declares_is_the_callers_error() -> None:
    with pytest.raises(KeyError, match="nr"):
        fill_in("$nr", VALUES, unknown)


def test_in_mlir_text_only_braces_make_a_reference() -> None:
    assert fill_in_text("$mr ${mr} ${tiles} ${fast}", VALUES, unknown, braced=True) == "$mr 8 1,8 true"
    assert names_in("a\n${mr}\n ${nr}") == [("mr", 2), ("nr", 3)]


def test_values_are_written_as_mlir_reads_them() -> None:
    assert [written(each) for each in (True, False, 8, 0.5, "x", (1, 8), ())] == [
        "true",
        "false",
        "8",
        "0.5",
        "x",
        "1,8",
        "",
    ]
