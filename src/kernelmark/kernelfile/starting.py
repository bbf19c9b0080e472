"""Writes a working solution with its reference, to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelmark.files import write_new
from kernelmark.kernelfile.request import LANGUAGES, Language

__all__ = ["Pair", "write_pair"]

_TEMPLATES = Path(__file__).parent / "templates"
"""Python files end in .txt there: they are no modules of this package, and some import what is not installed.
In the repository each is a link to its example."""

_SOLUTIONS = {
    Language.CUDA_CPP: "softmax.cu",
    Language.CUTLASS: "matmul_cutlass.cu",
    Language.CPP: "softmax.cpp",
    Language.TRITON: "softmax_triton.py.txt",
    Language.CUTE_DSL: "softmax_cute.py.txt",
    Language.TORCH: "softmax_torch.py.txt",
}
_SIZES = {"softmax": "--M=1024 --N=1024", "matmul": "--M=1024 --N=1024 --K=512"}
_INTERPRETED = "--M=64 --N=64 --device=cpu"
"""Triton's interpreter takes a minute for a million elements."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What was written, and how it is run."""

    solution: Path
    reference: Path
    command: str


def write_pair(language: Language, folder: Path) -> Pair:
    """Write a solution in ``language`` and its reference into ``folder``.

    Raises:
        UsageError: a file of that name is there already; nothing is written.
        RecordError: the folder cannot be written.
    """
    source = Path(_SOLUTIONS[language].removesuffix(".txt"))
    problem = source.stem.partition("_")[0]
    solution, reference = folder / f"{problem}{source.suffix}", folder / "reference.py"
    templates = {solution: _SOLUTIONS[language], reference: f"{problem}_reference.py.txt"}
    write_new({path: (_TEMPLATES / name).read_text("utf-8") for path, name in templates.items()})
    words = ["--compile"] if LANGUAGES[language].interface == "library" else []
    words.append(_INTERPRETED if language is Language.TRITON and not _has_gpu() else _SIZES[problem])
    command = (
        f"kernelmark kernel {solution} --implementation={language.value} --ref={reference}"
        f" --output-dir={folder / 'out'} {' '.join(words)}"
    )
    return Pair(solution, reference, command)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
