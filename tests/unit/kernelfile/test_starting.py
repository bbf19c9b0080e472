"""Each language has a working pair to start from; those that run here do run, as they were written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelfile import Language, Request, benchmark, write_pair
from kernelmark.kernelfile.names import names_in_python
from kernelmark.kernelfile.request import LANGUAGES
from kernelmark.kernelfile.signature import signature_of


@pytest.mark.parametrize("language", Language)
def test_the_pair_of_each_language_fits_its_interface(language: Language, tmp_path: Path) -> None:
    pair = write_pair(language, tmp_path / "new")
    asked = Request(pair.solution, pair.reference, tmp_path / "out", implementation=language.value)
    names_in_python(pair.reference, (), required=("reference",))
    if LANGUAGES[language].interface == "library":
        assert signature_of(asked).outputs
    else:
        names_in_python(pair.solution, (), required=("setup", "run_kernel"))
    assert f"--implementation={language.value}" in pair.command


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_pair(Language.TORCH, tmp_path)
    with pytest.raises(UsageError, match="overwrite"):
        write_pair(Language.CPP, tmp_path)
    assert not (tmp_path / "softmax.cpp").exists()


@pytest.mark.parametrize("language", [Language.TORCH, Language.CPP])
def test_the_pair_runs_at_once(language: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if language is Language.CPP and shutil.which("g++") is None:
        pytest.skip("needs g++, which is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pair = write_pair(language, tmp_path / "new")
    asked = Request(
        pair.solution,
        pair.reference,
        tmp_path / "out",
        values={"M": "16", "N": "33"},
        implementation=language.value,
        device="cpu",
        num_trials=4,
        cache="warm",  # type: ignore[arg-type]
        isolation=False,
        compile=language is Language.CPP,
    )
    assert benchmark(asked).outcome == "measured"
