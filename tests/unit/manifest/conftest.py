"""One valid manifest, and what is needed to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.manifest import Manifest, load_manifest, read_manifest

GEMM = (Path(__file__).parent / "gemm.yaml").read_text()


@pytest.fixture
def gemm() -> str:
    """Give the text of a valid manifest file."""
    return GEMM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a manifest folder that holds the valid file."""
    (tmp_path / "gemm.yaml").write_text(GEMM)
    return tmp_path


@pytest.fixture
def manifest(folder: Path) -> Manifest:
    """Give the valid manifest."""
    return load_manifest(folder)


@pytest.fixture
def spoiled(tmp_path: Path) -> Callable[[str, str], list[str]]:
    """Give what is wrong after a replacement in the valid file, each problem without its folder."""

    def problems(old: str, new: str) -> list[str]:
        assert GEMM.count(old) >= 1, f"nothing to spoil: {old!r}"
        (tmp_path / "gemm.yaml").write_text(GEMM.replace(old, new, 1))
        return [str(problem).replace(f"{tmp_path}/", "") for problem in read_manifest(tmp_path)[1]]

    return problems
