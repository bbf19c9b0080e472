"""Recurrent nets, imported as loops over time, against PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from kernelmark.errors import ModelImportError
from torchsched.ingress import import_graph, import_model

STEPS, BATCH, FEATURES, WIDTH = 6, 4, 5, 7
X = torch.linspace(-2, 2, STEPS * BATCH * FEATURES).sin().reshape(STEPS, BATCH, FEATURES)


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    ("net", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        (nn.LSTM, {"bias": False}),
        (nn.GRU, {"num_layers": 2}),
        (nn.GRU, {"bias": False, "bidirectional": True}),
        (nn.RNN, {"bidirectional": True}),
        (nn.RNN, {"nonlinearity": "relu", "num_layers": 2, "bias": False}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_recurrent_net_is_a_loop_and_gives_what_pytorch_gives(
    run, net: type[nn.RNNBase], options: dict[str, Any], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model, x = net(FEATURES, WIDTH, **options).to(dtype).eval(), X.to(dtype)
    imported = import_model(model, [x])
    loops = str(imported.module).count("scf.for")
    assert loops == options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(run(imported, [x]).output, model(x), rtol=tolerance, atol=tolerance)


@pytest.mark.spec("L3")
@pytest.mark.parametrize("net", [nn.LSTM, nn.GRU])
def test_first_states_are_taken_and_left_as_they_were(run, net: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    model = net(FEATURES, WIDTH).eval()
    state = torch.full((1, BATCH, WIDTH), 0.5)
    first = (state, state * -1) if net is nn.LSTM else state
    imported = import_model(model, [X, first])
    with torch.no_grad():
        torch.testing.assert_close(run(imported, [X, first]).output, model(X, first), rtol=1e-5, atol=1e-5)
    assert torch.equal(state, torch.full((1, BATCH, WIDTH), 0.5))


def test_the_size_of_a_module_does_not_depend_on_the_number_of_steps() -> None:
    model = nn.LSTM(FEATURES, WIDTH, num_layers=2).eval()
    few, many = (str(import_model(model, [torch.zeros(steps, 2, FEATURES)]).module) for steps in (2, 512))
    assert len(many.splitlines()) == len(few.splitlines())


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_an_lstm_that_projects_its_state_is_unrolled(run) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(FEATURES, WIDTH, proj_size=3).eval()
    imported = import_model(model, [X])
    assert "scf.for" not in str(imported.module)
    with torch.no_grad():
        torch.testing.assert_close(run(imported, [X]).output, model(X), rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_is_refused_in_training_mode_only() -> None:
    model = nn.LSTM(FEATURES, WIDTH, num_layers=2, dropout=0.5)
    import_model(model, [X])
    with pytest.raises(ModelImportError, match="draws random numbers"):
        import_model(model, [X], training=True)


@pytest.mark.spec("L4")
def test_a_recurrent_net_in_a_graph_of_torch_compile_is_a_loop_too(run) -> None:
    torch.manual_seed(0)
    model = nn.GRU(FEATURES, WIDTH).eval()
    loops = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        imported = import_graph(graph, example_inputs)
        loops.append(str(imported.module).count("scf.for"))
        return lambda *inputs: run(imported, inputs).output

    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(torch.compile(model, backend=backend)(X), model(X), rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    assert loops == [1]
