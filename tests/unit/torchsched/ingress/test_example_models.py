"""Every model that ships: imported, lowered by plain loops, and compared with PyTorch."""

from __future__ import annotations

import ast
import copy
from pathlib import Path

import pytest
import torch

from torchsched.elements import Element
from torchsched.ingress import import_model, load_model

ROOT = Path(__file__).resolve().parents[4] / "examples" / "KernelBench" / "models"
MODELS = sorted(ROOT.glob("level*/*.py"), key=lambda path: (path.parent.name, int(path.stem.split("_")[0])))


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_models_are_numbered_without_a_gap_and_say_what_they_exercise() -> None:
    assert len(MODELS) >= 20
    for level in sorted({path.parent for path in MODELS}):
        numbers = [int(path.stem.split("_")[0]) for path in MODELS if path.parent == level]
        assert numbers == list(range(1, len(numbers) + 1))
    for path in MODELS:
        assert "Exercises:" in (ast.get_docstring(ast.parse(path.read_text())) or ""), _label(path)


@pytest.mark.spec("L3", "L13")
@pytest.mark.parametrize("path", MODELS, ids=_label)
def test_a_shipped_model_gives_what_pytorch_gives(path: Path, run) -> None:
    loaded = load_model(path)
    reference = copy.deepcopy(loaded.model)
    imported = import_model(loaded.model, loaded.inputs, name=loaded.name)
    result = run(imported, loaded.inputs)
    with torch.no_grad():
        expected = reference(*copy.deepcopy(loaded.inputs))
    torch.testing.assert_close(result.output, expected, rtol=2e-5, atol=2e-5)
    for name, value in result.written.items():
        torch.testing.assert_close(value, _attribute(reference, name), rtol=2e-5, atol=2e-5)


@pytest.mark.spec("L6")
@pytest.mark.parametrize("path", MODELS, ids=_label)
def test_a_shipped_model_loads_in_bf16(path: Path) -> None:
    loaded = load_model(path, element=Element.BF16)
    floats = [each for each in loaded.inputs if isinstance(each, torch.Tensor) and each.is_floating_point()]
    assert {each.dtype for each in (*floats, *loaded.model.parameters())} == {torch.bfloat16}
    with torch.no_grad():
        loaded.model(*loaded.inputs)


def _attribute(model: torch.nn.Module, name: str) -> torch.Tensor:
    path, _, attribute = name.rpartition(".")
    return getattr(model.get_submodule(path), attribute)
