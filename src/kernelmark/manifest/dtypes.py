"""The dtypes a manifest may name, by torch's names without ``torch.``, and the bytes one element takes.

Written out here so that reading a manifest needs no torch; a test compares the table with torch's own.
"""

from __future__ import annotations

from kernelmark.text.near import suggestion

__all__ = ["DTYPE_BYTES", "unknown_dtype"]

DTYPE_BYTES: dict[str, int] = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}

_OTHER_WORDS = {
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "int": "int32",
    "long": "int64",
    "fp8": "float8_e4m3fn",
}


def unknown_dtype(name: str) -> str:
    """Say what to write instead of ``name``, which is no dtype."""
    plain = name.removeprefix("torch.")
    plain = _OTHER_WORDS.get(plain, plain)
    if plain in DTYPE_BYTES:
        return f"write {plain!r}"
    return suggestion(name, DTYPE_BYTES, there_are="dtypes")
