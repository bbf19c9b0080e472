"""Parameters as short texts."""

from __future__ import annotations

from kernelmark.report.params import param_texts


def test_text_stays_text_and_everything_else_is_json():
    assert param_texts(
        {"x": "float16[8]", "dim": -1, "on": True, "no": None, "shape": [1, 2], "m": {"µ": 1.5}}
    ) == {
        "x": "float16[8]",
        "dim": "-1",
        "on": "true",
        "no": "null",
        "shape": "[1, 2]",
        "m": '{"µ": 1.5}',
    }


def test_what_cannot_be_seen_is_escaped():
    assert param_texts({"a\n": "b\x1b"}) == {r"a\n": r"b\x1b"}
