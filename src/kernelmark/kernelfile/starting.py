"""Writes a working solution with its reference, to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import RecordError, UsageError
from kernelmark.kernelfile.languages import Language

__all__ = ["Pair", "write_pair"]

_TEMPLATES = Path(__file__).parent / "templates"
"""Python files end in .txt there: they are no modules of this package, and some import what is not installed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What was written, and how it is run."""

    solution: Path
    reference: Path
    command: str


@dataclass(frozen=True, slots=True)
class _Template:
    source: str
    target: str
    reference: str
    options: str


_BY_LANGUAGE = {
    Language.CUDA_CPP: _Template(
        "softmax.cu", "softmax.cu", "softmax_reference.py.txt", "--compile --M=1024 --N=1024"
    ),
    Language.CUTLASS: _Template(
        "matmul_cutlass.cu",
        "matmul.cu",
        "matmul_reference.py.txt",
        "--compile --M=1024 --N=1024 --K=512",
    ),
    Language.CPP: _Template(
        "softmax.cpp", "softmax.cpp", "softmax_reference.py.txt", "--compile --M=1024 --N=1024"
    ),
    Language.TRITON: _Template(
        "softmax_triton.py.txt", "softmax.py", "softmax_reference.py.txt", "--M=1024 --N=1024"
    ),
    Language.CUTE_DSL: _Template(
        "softmax_cute.py.txt", "softmax.py", "softmax_reference.py.txt", "--M=1024 --N=1024"
    ),
    Language.TORCH: _Template(
        "softmax_torch.py.txt", "softmax.py", "softmax_reference.py.txt", "--M=1024 --N=1024"
    ),
}


def write_pair(language: Language, folder: Path) -> Pair:
    """Write a solution in ``language`` and its reference into ``folder``.

    Raises:
        UsageError: a file of that name is there already; nothing is written.
        RecordError: the folder cannot be written.
    """
    template = _BY_LANGUAGE[language]
    solution, reference = folder / template.target, folder / "reference.py"
    there = [str(path) for path in (solution, reference) if path.exists()]
    if there:
        raise UsageError(f"--init would overwrite {' and '.join(there)}; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in ((template.source, solution), (template.reference, reference)):
            target.write_bytes((_TEMPLATES / source).read_bytes())
    except OSError as error:
        raise RecordError(f"cannot write into {folder}: {error.strerror}; name another folder") from error
    command = (
        f"kernelmark kernel {solution} --implementation={language.value} --ref={reference}"
        f" --output-dir={folder / 'out'} {template.options}"
    )
    return Pair(solution, reference, command)
