"""Model files: what they must hold, what their own code may do wrong, seeds and types."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import ModelFileError, UsageError
from torchsched.elements import FLOATS, Element
from torchsched.ingress import load_model, make_model, parse_init_args, parse_input_shapes

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.linear = nn.Linear(features, 3, bias=bias)
        self.held = torch.randn(3)
        self.places = torch.tensor([1, 0, 2])

    def forward(self, x, scale=1.0):
        return (self.linear(x) * scale + self.held)[:, self.places]

def get_inputs():
    return [torch.rand(2, 4)]

def get_init_inputs():
    return [4]
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "1_model.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return write


@pytest.fixture
def path(write) -> Path:
    return write(MODEL)


@pytest.mark.spec("L6")
def test_a_models_own_inputs_are_asked_for(path: Path) -> None:
    loaded = load_model(path)
    assert loaded.inferred
    assert loaded.name == "1_model"
    assert loaded.init_args == (4,)
    assert [tuple(each.shape) for each in loaded.inputs] == [(2, 4)]
    assert not loaded.model.training
    assert loaded.model(*loaded.inputs).shape == (2, 3)


@pytest.mark.spec("L6", "L9")
def test_inputs_that_are_given_take_the_place_of_its_own(path: Path) -> None:
    loaded = load_model(path, inputs=parse_input_shapes("5x6,=2.0"), init_args=parse_init_args("[6, False]"))
    assert not loaded.inferred
    assert loaded.inputs[0].shape == (5, 6)
    assert loaded.inputs[0].min() < 0
    assert loaded.inputs[1] == 2.0
    assert loaded.model.linear.bias is None


def test_a_model_without_get_init_inputs_is_made_without_arguments(write) -> None:
    path = write("import torch\nclass Model(torch.nn.Module):\n    def forward(self): return torch.ones(2)\n"
                 "def get_inputs(): return []\n")  # fmt: skip
    assert load_model(path).init_args == ()


@pytest.mark.spec("L9")
def test_empty_init_args_are_no_arguments(write) -> None:
    path = write(MODEL.replace("features, bias", "features=4, bias").replace("return [4]", "return [7]"))
    assert load_model(path, init_args=parse_init_args("[]")).init_args == ()


# --- seeds -------------------------------------------------------------------------------------------


def _numbers(loaded: Any) -> list[torch.Tensor]:
    return [*loaded.inputs, *loaded.model.state_dict().values(), loaded.model.held]


@pytest.mark.spec("L9")
@pytest.mark.parametrize("text", [None, "2x4"])
def test_a_seed_makes_the_same_model_and_inputs_each_time(path: Path, text: str | None) -> None:
    inputs = None if text is None else parse_input_shapes(text)
    first, again, other = (load_model(path, inputs=inputs, seed=seed) for seed in (3, 3, 4))
    assert all(map(torch.equal, _numbers(first), _numbers(again)))
    assert not any(map(torch.equal, _numbers(first), _numbers(other)))


def test_inputs_do_not_depend_on_how_many_numbers_the_model_took(write) -> None:
    small = load_model(write(MODEL, "small.py"))
    large = load_model(write(MODEL.replace("nn.Linear(features, 3", "nn.Linear(features, 9"), "large.py"))
    assert torch.equal(small.inputs[0], large.inputs[0])


def test_the_random_state_of_the_process_is_left_alone(path: Path) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    load_model(path, seed=5)
    assert torch.equal(torch.rand(3), expected)
    assert torch.is_grad_enabled()


# --- types -------------------------------------------------------------------------------------------


@pytest.mark.spec("L6")
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("text", [None, "2x4"])
def test_a_model_and_its_float_inputs_are_converted(path: Path, element: Element, text: str | None) -> None:
    inputs = None if text is None else parse_input_shapes(text)
    loaded = load_model(path, element=element, inputs=inputs)
    dtype = element.torch
    assert {each.dtype for each in (*loaded.inputs, *loaded.model.parameters(), loaded.model.held)} == {dtype}
    assert loaded.model.places.dtype == torch.int64
    with torch.no_grad():
        assert loaded.model(*loaded.inputs).dtype == dtype


@pytest.mark.spec("L6")
def test_a_type_that_an_input_names_is_kept(path: Path) -> None:
    loaded = load_model(path, element=Element.BF16, inputs=parse_input_shapes("2x4xf32"))
    assert loaded.inputs[0].dtype == torch.float32


@pytest.mark.spec("L6")
@pytest.mark.parametrize("element", [each for each in Element if each not in FLOATS])
def test_a_type_that_is_no_float_is_refused(path: Path, element: Element) -> None:
    with pytest.raises(UsageError, match=rf"cannot be converted to {element}; there are f64, f32, f16, bf16"):
        load_model(path, element=element)


def test_inputs_inside_lists_are_converted_and_whole_numbers_are_not(write) -> None:
    path = write("""
        import torch
        class Model(torch.nn.Module):
            def forward(self, pair, n): return pair[0] + pair[1]
        def get_inputs(): return [[torch.ones(2), torch.ones(2, dtype=torch.int64)], 3]
    """)
    (pair, n) = load_model(path, element=Element.F64).inputs
    assert ([each.dtype for each in pair], n) == ([torch.float64, torch.int64], 3)


# --- what can be wrong -------------------------------------------------------------------------------


@pytest.mark.spec("L12")
@pytest.mark.parametrize(
    ("text", "row", "problem"),
    [
        ("import torch\nclass Model(torch.nn.Module:\n    pass\n", 2, "no Python"),
        ("import torch\nimport no_such_module_at_all\n", 2, "No module named 'no_such_module_at_all'; install it"),
        ("import torch\n\n1 / 0\n", 3, "importing it raised ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", 2, "importing it raised SystemExit: 3"),
        (MODEL.replace("class Model(", "class Modle("), None, "defines no class Model; did you mean 'Modle'"),
        ("Model = 3\n", None, "Model is 3; it must be a class derived from torch.nn.Module"),
        ("class Model:\n    pass\n", None, "it must be a class derived from torch.nn.Module"),
        (MODEL.replace("def get_inputs", "def get_input"), None, r"defines no get_inputs\(\)"),
        (MODEL.replace("return [torch.rand(2, 4)]", "return torch.rand(2, 4)"), 14, "gave Tensor; it must give a list"),
        (MODEL.replace("torch.rand(2, 4)", "torch.rand(2, nothing)"), 15, r"get_inputs\(\) raised NameError"),
        (MODEL.replace("return [4]", "return ['a']"), None, r"Model\('a'\) raised TypeError"),
        (MODEL.replace("return [4]", "return [4, True, 5]"), None, r"Model\(4, True, 5\) raised TypeError"),
        (MODEL.replace("return [4]", "return 1 / 0"), 18, r"get_init_inputs\(\) raised ZeroDivisionError"),
        (MODEL.replace("torch.randn(3)", "torch.rand(nothing)"), 8, r"Model\(4\) raised NameError"),
        (MODEL.replace("[torch.rand(2, 4)]", "[1, 2, 3]"), 11, r"get_inputs\(\) gives 3 input\(s\)"),
        (MODEL.replace("torch.rand(2, 4)]", "torch.eye(4).to_sparse()]"), 14, "input 0 .* has layout torch.sparse_coo"),
        (MODEL.replace("rand(2, 4)", "rand(2, 4, device='meta')"), 14, r"input 0 .* has no values \(device meta\)"),
        (MODEL + "\nget_inputs = [1]\n", None, "it must be a function without parameters"),
    ],
)  # fmt: skip
def test_a_malformed_file_names_the_place_and_what_is_wrong(
    write, text: str, row: int | None, problem: str
) -> None:
    path = write(text)
    with pytest.raises(ModelFileError, match=problem) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}:{row}: " if row else str(path))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file"):
        load_model(tmp_path / "none.py")


def test_too_few_given_inputs_are_refused(path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"--input-shapes gives 3 input"):
        load_model(path, inputs=parse_input_shapes("2x4,=1,=2"))


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    models = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "model.py").write_text(
            MODEL.replace("nn.Linear(features, 3", f"nn.Linear(features, {number}")
        )
        models.append(load_model(folder / "model.py").model)
    assert [each.linear.out_features for each in models] == [1, 2]


def test_a_file_may_be_loaded_again_after_a_change(write) -> None:
    path = write(MODEL)
    size = random.randint(5, 50)
    load_model(path)
    load = load_model(write(MODEL.replace("nn.Linear(features, 3", f"nn.Linear(features, {size}")))
    assert load.model.linear.out_features == size


def test_another_class_of_a_file_is_made_with_the_same_seed_and_no_inputs(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Linear):\n    pass\nclass ModelNew(torch.nn.Linear):\n    pass\n"
    )
    old = make_model(path, init_args=[3, 4], seed=5)
    new = make_model(path, name="ModelNew", init_args=[3, 4], element=Element.BF16, seed=5)
    assert torch.equal(old.weight.to(torch.bfloat16), new.weight)
    assert new.training
    with pytest.raises(ModelFileError, match="defines no class ModelOther"):
        make_model(path, name="ModelOther", init_args=[3, 4])
    with pytest.raises(UsageError, match="is no file"):
        make_model(tmp_path / "none.py", init_args=[])
