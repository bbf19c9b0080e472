"""Code for aarch64 as far as it can be made elsewhere: schedules are found, and lower to the LLVM dialect.

torch-mlir's build for x86_64 has no AArch64 backend, so the last step is not taken. What is lowered names no
instruction of a processor, so it is run here: that tests the schedule, and nothing of an aarch64 machine.
"""

from __future__ import annotations

import re

import pytest
import torch

from kernelmark.errors import UnavailableError
from torchsched.bindings import available
from torchsched.building import BuildOptions, build
from torchsched.descriptors import find_schedule
from torchsched.execution import compile_lowered
from torchsched.ingress import import_model
from torchsched.lowering import lower
from torchsched.targets import Target, detect, override

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Elementwise(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a + 1) * torch.tanh(b)


def _target(feature: str) -> Target:
    return override(detect(threads=2), name="aarch64", feature=feature)


@pytest.mark.spec("L7")
@pytest.mark.parametrize(
    ("model", "pipeline", "dtype", "feature"),
    [
        (Product(), "matmul", torch.float32, "neon"),
        (Product(), "matmul", torch.float32, "sve"),
        (Product(), "matmul", torch.bfloat16, "neon"),
        (Elementwise(), "elementwise", torch.float32, "neon"),
        (Elementwise(), "elementwise", torch.bfloat16, "neon"),
    ],
)
def test_a_model_lowers_for_aarch64_in_vectors_of_its_width_and_the_schedule_is_right(
    model: torch.nn.Module, pipeline: str, dtype: torch.dtype, feature: str
) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(80, 80).to(dtype), torch.randn(80, 80).to(dtype)
    imported, target = import_model(model, (a, b)), _target(feature)
    schedule = find_schedule(pipeline, imported.signature.main_element, target)
    lowered = lower(imported, schedule, schedule.target)
    text = str(lowered.module)
    assert not re.findall(r"x86\.|llvm\.x86|_ZGV", text)  # neither its intrinsics nor its library of vectors
    widths = {int(n) * int(bits) for n, bits in re.findall(r"vector<(\d+)x[a-z]+(\d+)>", text)}
    assert widths
    loaded = {
        int(n) * int(bits) for n, bits in re.findall(r"llvm\.load .*-> vector<(\d+)x[a-z]+(\d+)>", text)
    }
    assert max(loaded) <= target.vector_bits == 128
    with compile_lowered(lowered) as compiled:
        (out,) = compiled(*imported.arguments((a, b)))
    wanted = model(a.double(), b.double())
    error = (out.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert error <= (1e-2 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.skipif(detect().name == "aarch64", reason="this machine can run it")
def test_machine_code_for_aarch64_is_refused_elsewhere_with_what_can_be_done() -> None:
    options = BuildOptions(target=_target("neon"))
    with pytest.raises(
        UnavailableError, match=r"target aarch64: this machine is .* listed and explained here"
    ):
        build(Product(), (torch.ones(4, 4), torch.ones(4, 4)), options)
