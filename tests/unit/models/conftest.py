"""Model files and schedules, right and wrong, for the tests of the way in for models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchsched.descriptors import SHIPPED

MODELS = {
    "product": (
        "class Model(torch.nn.Module):\n"
        "    def forward(self, a, b):\n"
        "        return a @ b\n"
        "def get_inputs():\n"
        "    return [torch.rand(16, 16), torch.eye(16)]\n"
    ),
    "net": (
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(8, width)\n"
        "    def forward(self, x):\n"
        "        return torch.relu(self.linear(x)), x.argmax(1)\n"
        "def get_inputs():\n"
        "    return [torch.randn(4, 8)]\n"
        "def get_init_inputs():\n"
        "    return [6]\n"
    ),
    "broken_graph": (
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        x = x * 2\n"
        "        torch._dynamo.graph_break()\n"
        "        return x + 1\n"
        "def get_inputs():\n"
        "    return [torch.randn(4, 8)]\n"
    ),
    "recurrent": (
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.hidden = torch.ones(3)\n"
        "        self.register_buffer('calls', torch.zeros(3))\n"
        "    def forward(self, x):\n"
        "        self.calls.add_(1)\n"
        "        self.hidden = self.hidden * 0.5 + x\n"
        "        x.mul_(2)\n"
        "        return self.hidden + self.calls + x\n"
        "def get_inputs():\n"
        "    return [torch.randn(3)]\n"
    ),
    "constant": (
        "class Model(torch.nn.Module):\n"
        "    def forward(self, index):\n"
        "        return index * 2\n"
        "def get_inputs():\n"
        "    return [torch.arange(6)]\n"
    ),
    "untraced": (
        "class Model(torch.nn.Module):\n"
        "    @torch._dynamo.disable\n"
        "    def forward(self, x):\n"
        "        return x + 1\n"
        "def get_inputs():\n"
        "    return [torch.rand(2, 1, 4)]\n"
    ),
    "lstm": (
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.lstm = torch.nn.LSTM(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.lstm(x)[0]\n"
        "def get_inputs():\n"
        "    return [torch.rand(2000, 1, 4)]\n"
    ),
    "no_export": (
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x * float(x.sum())\n"
        "def get_inputs():\n"
        "    return [torch.rand(3)]\n"
    ),
}
TRANSFORMS = """
from torchsched.bindings import bindings

def _find(module, name):
    ir, found = bindings("ir"), []
    def note(operation):
        if operation.name == name:
            found.append(operation)
        return ir.WalkResult.ADVANCE
    module.operation.walk(note)
    return found

def subtract(module, *, target):
    '''Wrong: every sum of floats becomes a difference.'''
    ir, arith = bindings("ir"), bindings("dialects.arith")
    inside = [each for each in _find(module, "arith.addf") if each.parent.name == "linalg.generic"]
    for operation in inside:
        with module.context, ir.Location.unknown(), ir.InsertionPoint(operation):
            other = arith.SubFOp(operation.operands[0], operation.operands[1])
        operation.results[0].replace_all_uses_with(other.result)
        operation.erase()

def first_factor(module, *, target):
    '''Wrong unless the second factor is the identity: a product becomes its first factor.'''
    for operation in _find(module, "linalg.matmul"):
        operation.results[0].replace_all_uses_with(operation.operands[0])
        operation.erase()
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(f"import torch\n\n{MODELS[name]}")
        return path

    return write


@pytest.fixture
def schedule_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a schedule that does one wrong thing and then what ``loops`` does; or one that ends too early."""

    def write(transform: str) -> Path:
        path = tmp_path / f"{transform}.yaml"
        (tmp_path / "wrong.py").write_text(TRANSFORMS)
        if transform == "short":
            path.write_text("pipeline:\n  - pass: cse\n")
        else:
            path.write_text(
                f"pipeline:\n  - transform: wrong.py:{transform}\n  - include: {SHIPPED / 'loops.yaml'}\n"
            )
        return path

    return write
