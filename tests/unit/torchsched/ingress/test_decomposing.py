"""Rules that are kept do what torch's own do, and leave no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import fake_impls
from torch.export import ExportedProgram, exported_program
from torch.nn import functional

from torchsched.ingress.decomposing import decompose
from torchsched.ingress.exporting import _decompositions

aten = torch.ops.aten

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own use of it


class Several(nn.Module):
    """Operators that are kept whole, that the table takes apart, and that torch does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(functional.gelu(self.linear(x), approximate="tanh"))
        z = functional.interpolate(y[None], scale_factor=2.0)
        return functional.scaled_dot_product_attention(y, y, y), z, torch.einsum("bij,bkj->bik", y, y)


def program() -> ExportedProgram:
    return torch.export.export(Several().eval(), (torch.zeros(2, 4, 8),), strict=False)


def rules() -> dict[str, Any]:
    operators = [getattr(getattr(aten, name), each) for name in dir(aten) for each in _overloads(name)]
    return {str(op): dict(op.py_kernels) for op in operators} | {
        "fakes": dict(fake_impls.op_implementations_dict)
    }


def _overloads(name: str) -> list[str]:
    packet = getattr(aten, name)
    return packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else []


def test_the_graph_is_torchs_own_the_first_time_and_after() -> None:
    with torch.no_grad():
        own = program().run_decompositions(_decompositions()).graph_module.code
        assert [decompose(program(), _decompositions()).graph_module.code for _ in range(3)] == [own] * 3


def test_another_table_has_its_own_rules() -> None:
    table = _decompositions()
    less = {op: rule for op, rule in table.items() if op is not aten.gelu.default}
    with torch.no_grad():
        decompose(program(), table)
        found = decompose(program(), less).graph_module.code
        assert found == program().run_decompositions(dict(less)).graph_module.code
        assert found != decompose(program(), table).graph_module.code


def test_every_rule_is_as_it_was_afterwards() -> None:
    with torch.no_grad():
        decompose(program(), _decompositions())
        before, functions = rules(), vars(exported_program).copy()
        decompose(program(), _decompositions())
    assert len(before) > 500
    assert rules() == before
    assert vars(exported_program) == functions


def test_an_error_leaves_every_rule_as_it_was_too() -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError

    table = {**_decompositions(), aten.native_layer_norm.default: fails}
    before = rules()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), torch.no_grad():
            decompose(program(), table)
        assert rules() == before


def test_where_torch_has_no_such_functions_its_own_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        own = decompose(program(), _decompositions()).graph_module.code
        made: list[Any] = []
        monkeypatch.setattr("torchsched.ingress.decomposing._COLLECT", "_of_another_version")
        monkeypatch.setattr("torchsched.ingress.decomposing._overridden", made.append)
        assert decompose(program(), _decompositions()).graph_module.code == own
    assert not made
