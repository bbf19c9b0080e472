"""Shipped models where something is missing: right, with a line that says why the schedule is a slower one.

The script that runs all of them in every setting is run here on a few.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_mlir")

from scripts import model_settings
from torchsched.targets import Feature, detect

FEW = ["1_square_matmul", "8_softmax", "1_mlp"]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def _main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["model_settings.py", *words])
    return model_settings.main()


@pytest.mark.skipif(
    Feature.AVX512 not in detect().features, reason="this processor has no AVX-512 to leave out"
)
@pytest.mark.parametrize("setting", ["avx2", "no-feature"])
def test_without_avx512_models_are_right_and_a_line_says_so(
    setting: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, setting, "--here", "--models", *FEW) == 0
    said = capsys.readouterr().out
    assert "3 of 3 right" in said
    bits = 256 if setting == "avx2" else 128
    assert len(re.findall(rf"verified, .* vectors of {bits} bits", said)) == 3


def test_on_one_thread_models_are_right_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, "one-thread", "--here", "--models", *FEW) == 0
    assert len(re.findall(r"verified, .* 1 thread$", capsys.readouterr().out, re.MULTILINE)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="a process can be kept on one core on Linux only")
@pytest.mark.parametrize("setting", ["no-openmp", "one-core"])
def test_without_a_runtime_and_on_one_core_models_are_right_and_a_line_says_so(setting: str) -> None:
    done = subprocess.run(
        [sys.executable, model_settings.__file__, setting, "--models", *FEW],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"verified, .* 1 thread$", done.stdout, re.MULTILINE)) == 3


@pytest.mark.spec("L4")
def test_both_ways_in_agree_in_bf16(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In f32 each model is compared by itself, in test_backend.py."""
    assert _main(monkeypatch, "modes-bf16", "--here", "--models", *FEW) == 0
    assert len(re.findall(r"bit for bit|within the check", capsys.readouterr().out)) == 3


def test_a_line_that_is_missing_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = replace(model_settings.SETTINGS["one-thread"], says="nobody says this")
    monkeypatch.setitem(model_settings.SETTINGS, "one-thread", silent)
    assert _main(monkeypatch, "one-thread", "--here", "--models", "6_relu") == 1
    assert "WRONG: no line says 'nobody says this'" in capsys.readouterr().out


def test_an_unknown_setting_and_an_unknown_model_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _main(monkeypatch, "no-such")
    assert "no setting no-such; there are modes-f32" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no model none; there are 1_square_matmul"):
        _main(monkeypatch, "avx2", "--models", "none")
