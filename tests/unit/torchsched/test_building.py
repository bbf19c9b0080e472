"""A model becomes a compiled one in one call, each stage timed, and errors of use come before the work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelmark.errors import ModelLoweringError, ScheduleError, UnavailableError
from torchsched import building
from torchsched.bindings import available
from torchsched.building import BuildOptions, build
from torchsched.elements import Element
from torchsched.failures import Stage
from torchsched.targets import Target, detect

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def test_a_model_is_compiled_and_each_stage_has_its_time() -> None:
    model, x = Net().eval(), torch.randn(3, 8)
    built = build(model, (x,))
    assert set(built.seconds) == {Stage.IMPORT, Stage.LOWER, Stage.COMPILE}
    assert all(each > 0 for each in built.seconds.values())
    assert built.schedule.name == "default/f32"
    bound = built.compiled.bind(built.imported.arguments((x,)))
    bound()
    torch.testing.assert_close(built.imported.assemble(bound.results), model(x))


def test_the_schedule_is_looked_up_for_the_type_that_the_model_has() -> None:
    built = build(Net().to(torch.bfloat16).eval(), (torch.randn(3, 8).bfloat16(),), BuildOptions(("loops",)))
    assert built.schedule.name == "loops/bf16"


def test_parameters_and_roots_reach_the_schedule(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "parameters:\n  times: {default: 1}\npipeline:\n  - include: "
        f"{building.__file__.rpartition('/')[0]}/schedules/loops.yaml\n"
        "  - pass: canonicalize{max-iterations=$times}\n"
    )
    options = BuildOptions(("mine",), roots=(tmp_path,), values={"times": "3"})
    built = build(Net().eval(), (torch.randn(3, 8),), options)
    assert built.schedule.values == {"times": 3}
    assert built.schedule.steps[-1].name == "canonicalize{max-iterations=3}"


def test_an_observer_sees_the_module_as_imported_first() -> None:
    seen: list[tuple[str, str]] = []
    build(Net().eval(), (torch.randn(3, 8),), observer=lambda name, module: seen.append((name, str(module))))
    assert seen[0][0] == "import"
    assert "-> tensor<3x4xf32>" in seen[0][1]
    assert seen[1][0] == "results to arguments"


def test_an_unknown_schedule_is_told_before_the_model_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was imported")

    monkeypatch.setattr("torchsched.ingress.importing.import_model", never)
    with pytest.raises(ScheduleError, match="no schedule 'lops'"):
        build(Net(), (torch.randn(3, 8),), BuildOptions(("lops",), element=Element.F32))


def test_code_for_another_machine_is_refused() -> None:
    other = "aarch64" if detect().name != "aarch64" else "x86_64"
    with pytest.raises(UnavailableError, match=f"target {other}: this machine is"):
        build(Net(), (torch.randn(3, 8),), BuildOptions(target=Target(other)))


def test_the_error_of_a_stage_passes_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("pipeline:\n  - pass: cse\n")
    with pytest.raises(ModelLoweringError, match="still holds"):
        build(Net().eval(), (torch.randn(3, 8),), BuildOptions((str(path),)))
