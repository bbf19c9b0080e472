"""The types that ``solve(...)`` may take: C's name, torch's name, how C is handed one, and its range.

Knows no parser and imports no torch.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from dataclasses import dataclass
from typing import Any, Literal

from kernelmark.errors import UsageError

__all__ = ["CType", "find_type", "number", "supported_types"]


@dataclass(frozen=True, slots=True)
class CType:
    """One element type."""

    dtype: str
    """Torch's name, without ``torch.``."""
    kind: Literal["float", "int", "uint", "bool"]
    bits: int
    by_value: bool = True
    """Whether a scalar of it can be handed to C."""

    @property
    def integral(self) -> bool:
        """Whether it counts as a dimension."""
        return self.kind in ("int", "uint")

    def parse(self, text: str, name: str) -> int | float | bool:
        """Read a scalar from a command line.

        Raises:
            UsageError: it is no such number, or out of range.
        """
        value = number(text)
        if self.kind == "bool":
            if value not in (0, 1):
                raise UsageError(f"--{name}={text}: {name} is a bool; give true, false, 1 or 0")
            return bool(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(f"--{name}={text}: {name} is a {self.dtype}; give a number")
        return self._float(value, text, name) if self.kind == "float" else self._int(value, text, name)

    def pass_by_value(self, value: Any) -> Any:
        """Wrap ``value`` as ctypes hands it to C."""
        if self.kind == "bool":
            return ctypes.c_bool(value)
        if self.kind == "float" and self.bits == 16:
            return _Half(_half_bits(value, self.dtype))
        return _BY_VALUE[self.kind, self.bits](value)

    def _int(self, value: float, text: str, name: str) -> int:
        if isinstance(value, float) and not value.is_integer():
            raise UsageError(f"--{name}={text}: {name} is a {self.dtype}; give a whole number")
        low = -(2 ** (self.bits - 1)) if self.kind == "int" else 0
        high = 2 ** (self.bits - (self.kind == "int")) - 1
        if not low <= value <= high:
            raise UsageError(f"--{name}={text}: {name} is a {self.dtype}, from {low} to {high}")
        return int(value)

    def _float(self, value: float, text: str, name: str) -> float:
        largest = _LARGEST[self.dtype]
        if math.isfinite(value) and abs(value) > largest:
            raise UsageError(f"--{name}={text}: {name} is a {self.dtype}, up to {largest:g}")
        return float(value)


def number(text: str) -> int | float | bool | str:
    """Read what a command line gives: a whole number (``2^10`` too), a number, true or false, else text."""
    power = re.fullmatch(r"(-?\d+)\^(\d{1,3})", text)
    if power:
        return int(power[1]) ** int(power[2])
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (lambda: int(text, 0), lambda: int(text), lambda: float(text)):
        try:
            return read()
        except ValueError:
            continue
    return text


def find_type(name: str) -> CType | None:
    """Give the type that C calls ``name``, without qualifiers; ``None`` for one that is not supported."""
    return _TYPES.get(_plain(name))


def supported_types() -> str:
    """List the supported types for a message."""
    return (
        "float, double, half (__half), bfloat16 (__nv_bfloat16), bool, and signed and unsigned integers of 8 to"
        " 64 bits"
    )


class _Half(ctypes.Structure):
    """A 16-bit float by value: a struct of 16 bits, as CUDA's and CUTLASS's own types are."""

    _fields_ = (("bits", ctypes.c_uint16),)


def _half_bits(value: float, dtype: str) -> int:
    if dtype == "float16":
        return int.from_bytes(struct.pack("<e", value), "little")
    word = int.from_bytes(struct.pack("<f", value), "little")
    if math.isnan(value):
        return (word >> 16) | 0x40
    # round to nearest, ties to even, as the hardware's conversion does
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16 & 0xFFFF


def _plain(name: str) -> str:
    words = re.sub(r"\s*::\s*", "::", name).split()
    if words and all(word in _WORDS for word in words):
        return " ".join(sorted(word for word in words if word != "int" or len(words) == 1))
    joined = " ".join(words)
    return joined.removeprefix("::").removeprefix("std::")


_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool"})
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028235e38, "float64": math.inf}
_BY_VALUE: dict[tuple[str, int], Any] = {
    ("float", 32): ctypes.c_float,
    ("float", 64): ctypes.c_double,
    **{("int", bits): getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{("uint", bits): getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}

_LONG = 8 * ctypes.sizeof(ctypes.c_long)
_HALF = CType("float16", "float", 16)
_BFLOAT16 = CType("bfloat16", "float", 16)
_NAMES: tuple[tuple[CType, tuple[str, ...]], ...] = (
    (CType("float32", "float", 32), ("float", "float32_t")),
    (CType("float64", "float", 64), ("double", "float64_t")),
    (_HALF, ("half", "__half", "half_t", "cutlass::half_t", "at::Half", "c10::Half")),
    # the compilers' own 16-bit types travel in vector registers, which ctypes cannot fill
    (CType("float16", "float", 16, by_value=False), ("_Float16", "__fp16")),
    (
        _BFLOAT16,
        (
            "__nv_bfloat16",
            "nv_bfloat16",
            "bfloat16",
            "bfloat16_t",
            "cutlass::bfloat16_t",
            "at::BFloat16",
            "c10::BFloat16",
        ),
    ),
    (CType("bfloat16", "float", 16, by_value=False), ("__bf16",)),
    (CType("int8", "int", 8), ("int8_t", "char", "signed char", "__int8_t")),
    (CType("int16", "int", 16), ("int16_t", "short", "signed short")),
    (CType("int32", "int", 32), ("int32_t", "int", "signed", "signed int")),
    (CType("int64", "int", 64), ("int64_t", "long long", "signed long long", "ptrdiff_t", "ssize_t")),
    (CType("uint8", "uint", 8), ("uint8_t", "unsigned char")),
    (CType("uint16", "uint", 16), ("uint16_t", "unsigned short")),
    (CType("uint32", "uint", 32), ("uint32_t", "unsigned", "unsigned int", "uint")),
    (CType("uint64", "uint", 64), ("uint64_t", "unsigned long long", "size_t")),
    (CType("bool", "bool", 8), ("bool", "_Bool")),
    (CType(f"int{_LONG}", "int", _LONG), ("long", "signed long")),
    (CType(f"uint{_LONG}", "uint", _LONG), ("unsigned long", "ulong")),
)
_TYPES = {_plain(name): ctype for ctype, names in _NAMES for name in names}
