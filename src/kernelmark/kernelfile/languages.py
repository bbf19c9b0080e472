"""The languages a solution can be written in: one table of what each file is, needs, and is called.

Knows no compiler, no device and no file's content.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from kernelmark.errors import UsageError

__all__ = ["LANGUAGES", "Language", "LanguageEntry", "choose_language"]


class Language(StrEnum):
    """What ``--implementation`` can be, besides ``auto``."""

    CUDA_CPP = "cuda-cpp"
    CUTLASS = "cutlass"
    CPP = "cpp"
    TRITON = "triton"
    CUTE_DSL = "cute-dsl"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class LanguageEntry:
    """One language.

    A ``library`` is a compiled file with ``solve``; a ``module`` is a Python file with ``setup`` and
    ``run_kernel``.
    """

    interface: Literal["library", "module"]
    suffixes: tuple[str, ...]
    runs_on: Literal["cuda", "cpu", "any"]
    backend: str
    """How it computes, in a few words for the report."""
    package: str | None = None
    """The Python package without which it cannot run."""
    distribution: str = ""
    """What to install to have that package, or the headers."""
    flags: tuple[str, ...] = ()
    """What its compiler is given besides."""
    headers: tuple[str, ...] = ()
    """Folders of headers in an installed package, from the package's name on."""
    own_arch: bool = False
    """Whether it is compiled for one architecture alone, with instructions that later ones do not have."""


LANGUAGES: dict[Language, LanguageEntry] = {
    Language.CUDA_CPP: LanguageEntry("library", (".cu",), "cuda", "CUDA C++"),
    Language.CUTLASS: LanguageEntry(
        "library",
        (".cu",),
        "cuda",
        "CUTLASS",
        distribution="nvidia-cutlass",
        # with its assertions, Hopper's matrix instructions are waited for one by one, as ptxas warns
        flags=("--expt-relaxed-constexpr", "-DNDEBUG"),
        headers=("cutlass_library/source/include", "cutlass_library/source/tools/util/include"),
        own_arch=True,
    ),
    Language.CPP: LanguageEntry("library", (".c", ".cc", ".cpp", ".cxx"), "cpu", "C or C++"),
    Language.TRITON: LanguageEntry("module", (".py",), "cuda", "Triton", "triton", "triton"),
    Language.CUTE_DSL: LanguageEntry("module", (".py",), "cuda", "CuTe DSL", "cutlass", "nvidia-cutlass-dsl"),
    Language.TORCH: LanguageEntry("module", (".py",), "any", "torch"),
}

_BY_SUFFIX = {
    ".py": Language.TRITON,
    **dict.fromkeys(LANGUAGES[Language.CPP].suffixes, Language.CPP),
    ".cu": Language.CUDA_CPP,
}
"""What ``auto`` takes a file to be."""


def choose_language(asked: str, solution: Path) -> Language:
    """Give the language that ``asked`` names; ``auto`` goes by the file's suffix.

    Raises:
        UsageError: there is no such language, or the file is not of its kind.
    """
    if asked == "auto":
        if solution.suffix not in _BY_SUFFIX:
            raise UsageError(
                f"{solution}: a solution is a {', '.join(_BY_SUFFIX)} file, this one ends in {solution.suffix!r}"
            )
        return _BY_SUFFIX[solution.suffix]
    try:
        language = Language(asked)
    except ValueError:
        raise UsageError(
            f"--implementation={asked}: there is auto, {', '.join(each.value for each in Language)}"
        ) from None
    suffixes = LANGUAGES[language].suffixes
    if solution.suffix not in suffixes:
        raise UsageError(
            f"--implementation={language.value} takes a {' or '.join(suffixes)} file, not {solution.name};"
            " name another implementation, or leave it to auto"
        )
    return language
