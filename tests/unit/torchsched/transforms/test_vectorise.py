"""Elementwise operations, reductions, norms, windows and scans, as torch-mlir imports them, by shipped pipelines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchsched.bindings import available, bindings
from torchsched.descriptors import find_schedule
from torchsched.execution import Compiled, compile_lowered
from torchsched.ingress import Imported, import_model
from torchsched.lowering import lower
from torchsched.openmp import find_openmp
from torchsched.targets import Feature, Target, detect, override

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)
SERIAL = detect(threads=1)
TARGETS = [detect(threads=threads) for threads in ((1, 2) if find_openmp() else (1,))]
"""One thread, and two where there is a runtime for them."""


@pytest.mark.skipif(not find_openmp(), reason=find_openmp().detail)
def test_what_follows_runs_on_one_thread_and_on_two() -> None:
    """Without a runtime for threads it runs on one, and this says so."""
    assert [target.threads for target in TARGETS] == [1, 2]


class Calls(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Ran:
    """What a compiled function gave."""

    results: tuple[torch.Tensor, ...]
    text: str
    """The module once its loops were written."""
    compiled: Compiled

    @property
    def untouched(self) -> list[str]:
        """The structured operations that the transforms left alone, but for fills."""
        return re.findall(r"(?:linalg|tm_tensor)\.(?!fill|yield)\w+", self.text)


def tensors(found: Any) -> tuple[torch.Tensor, ...]:
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def run(function: Callable[..., Any], *inputs: torch.Tensor, target: Target = SERIAL) -> Ran:
    """Compile a function and call it once; threads divide even the smallest work."""
    (ran,) = run_each(function, *inputs, targets=[target])
    return ran


def run_each(function: Callable[..., Any], *inputs: torch.Tensor, targets: Sequence[Target]) -> list[Ran]:
    """Import a function once, which takes half of a compilation; compile and call it for each target."""
    imported = import_model(Calls(function).eval(), inputs)
    text = imported.module.operation.get_asm(enable_debug_info=True)
    return [_run(imported, text, inputs, target) for target in targets]


def _run(imported: Imported, text: str, inputs: Sequence[torch.Tensor], target: Target) -> Ran:
    texts: list[str] = []

    def observe(step: str, module: Any) -> None:
        if "vectorise:vectorise" in step:
            texts.append(str(module))

    module = bindings("ir").Module.parse(text, imported.context)
    schedule = find_schedule("default", imported.signature.main_element, target, values={"grain": 1})
    lowered = lower(replace(imported, module=module), schedule, schedule.target, observer=observe)
    compiled = compile_lowered(lowered)
    bound = compiled.bind(imported.arguments(inputs))
    bound()
    return Ran(tensors(imported.assemble(bound.results)), texts[0], compiled)


def check(
    function: Callable[..., Any], *inputs: torch.Tensor, left: Sequence[str] = (), target: Target = SERIAL
) -> Ran:
    """Compare what a compiled function gives with eager, in f32 where the inputs are narrower."""
    (ran,) = check_each(function, *inputs, left=left, targets=[target])
    return ran


def check_each(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    left: Sequence[str] = (),
    targets: Sequence[Target] = TARGETS,
) -> list[Ran]:
    """Compare what it gives for each target: one thread and two."""
    narrow = any(each.dtype in (torch.bfloat16, torch.float16) for each in inputs)
    exact = [each.float() if narrow and each.is_floating_point() else each for each in inputs]
    eager, wanted = tensors(function(*inputs)), tensors(function(*exact))
    found = run_each(function, *inputs, targets=targets)
    for target, ran in zip(targets, found, strict=True):
        for mine, theirs, right in zip(ran.results, eager, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), target
            close = {torch.float32: 3e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(theirs.dtype, 0.0)
            close = 1e-12 if theirs.dtype == torch.float64 else close
            _require_close(mine, right.to(theirs.dtype), close, target)
        assert ran.untouched == list(left), target
    return found


def _require_close(found: torch.Tensor, wanted: torch.Tensor, close: float, target: Target) -> None:
    torch.testing.assert_close(
        found, wanted, rtol=close, atol=close, equal_nan=True, msg=lambda said: f"{target}: {said}"
    )


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def whole(*shape: int, low: int = -9, high: int = 9, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


# --- elementwise ----------------------------------------------------------------------------------

ACTIVATIONS = (F.relu, F.gelu, F.silu, F.mish, F.softplus, F.elu, F.hardswish, F.leaky_relu, F.softsign)


def activations(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(function(x) for function in ACTIVATIONS)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (33, 65), (2, 1, 16), (3, 5, 17)], ids=str)
def test_elementwise_functions_of_any_shape(shape: tuple[int, ...]) -> None:
    check_each(activations, drawn(*shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_elementwise_functions_of_any_type(dtype: torch.dtype) -> None:
    check(activations, drawn(9, 37, dtype=dtype))


def test_an_empty_tensor_stays_empty() -> None:
    kind = ["generic"] * len(ACTIVATIONS)
    ran = run(activations, drawn(0, 4))
    assert [each.shape for each in ran.results] == [(0, 4)] * len(kind)


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5, 6), (5, 1)),
        ((64, 1), (1, 70)),
        ((8, 16, 3), (16, 1)),
        ((4, 5, 6), ()),
        ((2, 3, 4, 5), (3, 1, 1)),
    ],
    ids=str,
)
def test_operands_are_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = drawn(*shapes[0]), drawn(*shapes[1], seed=1)
    check_each(lambda x, y: x * y + torch.exp(y), a, b)


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: x.T.contiguous(),
        lambda x: x + x.T,
        lambda x: x.flip(1) * 2,
        lambda x: x.flip(0).T * 2,
        lambda x: x[:, 1:7] * 2,
        lambda x: x[::2, ::3] + 1,
        lambda x: F.pad(x, (1, 2, 0, 3)) + 1,
        lambda x: x.tril(),
        lambda x: x.reshape(11, 3, 33).permute(2, 0, 1) + 0,
        lambda x: torch.cat([x, x * 2], 1),
        lambda x: x.roll(1, 1),
    ],
)
def test_elements_are_moved(moved: Callable[..., Any]) -> None:
    for ran in run_each(moved, drawn(33, 33), targets=TARGETS):
        torch.testing.assert_close(ran.results[0], moved(drawn(33, 33)))


def test_large_transposes_go_through_registers() -> None:
    ran = check(lambda x: x.T.contiguous(), drawn(70, 90))
    assert "vector.shuffle" in ran.text
    assert "tensor.extract %" not in ran.text


def test_whole_numbers_and_booleans() -> None:
    a, b, x = whole(5, 33), whole(5, 33, low=1, seed=1), drawn(5, 33)
    check_each(lambda a, b: (a + b * 2, torch.div(a, b, rounding_mode="floor"), a % b), a, b)
    check_each(lambda x: (x > 0, (x * 10).to(torch.int32), x.isnan()), x)
    check_each(lambda m, x: torch.where(m, x, -x), x > 0, x)
    check_each(lambda m: (m.all(1), m.any(0), ~m), x > 1)
    check_each(lambda a: (a.sum(1), a.float() * 1.5, a.max(0).values), a)


def test_powers_with_known_exponents_are_products_and_roots() -> None:
    ran = check(lambda x: (x**2, x**3, x**0.5, x**-1, x**1.5), drawn(5, 40).abs() + 0.1)
    assert "powf" not in ran.text
    assert "powi" not in ran.text


# --- reductions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 17), (1, 33, 2), (40, 3, 50), (2, 70, 16)], ids=str)
def test_reductions_along_any_dimension(shape: tuple[int, ...], dimension: int) -> None:
    def reduced(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = dimension
        most = x.max(d)
        return x.sum(d), x.mean(d), x.prod(d), most.values, most.indices, x.min(d).values, x.argmin(d)

    check_each(reduced, drawn(*shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_reductions_of_any_type(dtype: torch.dtype) -> None:
    check(lambda x: (x.sum(1), x.mean(0), x.amax(1), x.argmax(1)), drawn(9, 70, dtype=dtype))


def test_a_tensor_is_reduced_to_one_number() -> None:
    check_each(lambda x: (x.sum(), x.mean(), x.max(), x / x.norm()), drawn(64, 96))
    check_each(F.mse_loss, drawn(33, 65), drawn(33, 65, seed=1))


def test_the_first_of_equal_extremes_counts() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0] * 20, [5.0] * 80, [-float("inf")] * 80])
    check(lambda x: (x.argmax(1), x.argmin(1)), x)


def test_a_sum_of_a_million_is_as_good_as_torch_s() -> None:
    x = torch.rand(1 << 20, generator=torch.Generator().manual_seed(3))
    exact = x.double().sum()
    (found,) = run(lambda x: x.sum(), x).results
    assert abs(found - exact) <= max(abs(x.sum() - exact), 4 * torch.finfo(torch.float32).eps * exact)
    (columns,) = run(lambda x: x.reshape(-1, 16).sum(0), x).results
    wanted = x.double().reshape(-1, 16).sum(0)
    assert ((columns - wanted).abs() / wanted).max() < 2e-6


def test_what_is_no_number_is_the_largest() -> None:
    x = drawn(3, 50)
    x[1, 7] = float("nan")
    check(lambda x: (x.amax(1), x.amin(0), x.sum(1)), x)


# --- norms ----------------------------------------------------------------------------------------

NORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of the middle": lambda x: F.softmax(x, 1),
    "log softmax of the first": lambda x: F.log_softmax(x, 0),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer norm of two": lambda x: F.layer_norm(x, x.shape[-2:]),
    "RMS norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "batch norm, training": lambda x: F.batch_norm(x, None, None, training=True),
    "instance norm": lambda x: F.instance_norm(x),
    "group norm": lambda x: F.group_norm(x, 2),
    "L2 norm": lambda x: x / x.norm(dim=1, keepdim=True),
    "L1 norm": lambda x: x / x.abs().sum(1, keepdim=True),
    "standard deviation": lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
    "log of the sum": lambda x: torch.logsumexp(x, -1),
}


@pytest.mark.parametrize("shape", [(3, 4, 65), (2, 6, 16), (40, 2, 5)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_right_over_rows_of_any_length(name: str, shape: tuple[int, ...]) -> None:
    check_each(NORMS[name], drawn(*shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer norm", "batch norm, training"])
def test_norms_of_any_type(name: str, dtype: torch.dtype) -> None:
    check(NORMS[name], drawn(6, 4, 40, dtype=dtype))


def test_a_softmax_keeps_its_row_and_leaves_no_tensor_between() -> None:
    ran = check(lambda x: F.softmax(x, -1), drawn(64, 1000))
    spaces = [space.numel for space in ran.compiled.workspaces]
    assert sum(spaces) <= 2 * 1008 * 4  # rows of exponentials, not matrices
    assert ran.text.count("scf.for") <= 10


def test_norms_with_learned_scales() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(40), torch.nn.Linear(40, 12), torch.nn.BatchNorm1d(12))
    x = drawn(9, 40)
    check(model.eval(), x)
    check(torch.nn.GroupNorm(3, 6).eval(), drawn(4, 6, 10))


def test_a_norm_may_be_written_across_what_it_was_read_along() -> None:
    check(lambda x: F.softmax(x.T, 0), drawn(2, 10))
    check(lambda x: F.softmax(x.T, 0), drawn(5, 37))


def test_losses() -> None:
    x, y, target = drawn(8, 10), drawn(8, 10, seed=1), whole(8, low=0, high=10)
    # the checks of its indices are operations without a result, and left to loops
    (found,) = run(F.cross_entropy, x, target).results
    torch.testing.assert_close(found, F.cross_entropy(x, target))
    check(lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"), x, y)
    check(lambda x, y: (1 - F.cosine_similarity(x, y)).mean(), x, y)


# --- windows and scans ----------------------------------------------------------------------------

WINDOWS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), ((2, 3, 15, 21),)),
    "max pool, spread": (lambda x: F.max_pool2d(x, 3, 1, 1, 2), ((2, 3, 20, 20),)),
    "max pool of lines": (lambda x: F.max_pool1d(x, 4, 2), ((2, 3, 50),)),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), ((2, 3, 15, 21),)),
    "average pool of volumes": (lambda x: F.avg_pool3d(x, 2), ((1, 2, 8, 8, 40),)),
    "average of all": (lambda x: F.adaptive_avg_pool2d(x, 1), ((2, 3, 7, 9),)),
    "convolution": (lambda x, w: F.conv2d(x, w, None, 1, 1), ((2, 3, 14, 15), (8, 3, 3, 3))),
    "convolution, bias": (F.conv2d, ((1, 3, 20, 36), (7, 3, 3, 3), (7,))),
    "convolution in steps": (lambda x, w: F.conv2d(x, w, None, 2, 1), ((2, 3, 33, 35), (8, 3, 3, 3))),
    "convolution, spread": (lambda x, w: F.conv2d(x, w, None, 1, 2, 2), ((1, 3, 20, 20), (4, 3, 3, 3))),
    "convolution of points": (F.conv2d, ((2, 6, 9, 9), (5, 6, 1, 1))),
    "convolution by channel": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6), ((2, 6, 9, 20), (6, 1, 3, 3))),
    "convolution in groups": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 2), ((2, 6, 9, 20), (8, 3, 3, 3))),
    "convolution transposed": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1),
        ((1, 6, 7, 9), (6, 8, 3, 3)),
    ),
    "convolution of lines": (F.conv1d, ((2, 6, 40), (8, 6, 3))),
    "convolution of volumes": (lambda x, w: F.conv3d(x, w, None, 1, 1), ((1, 3, 6, 7, 18), (4, 3, 3, 3, 3))),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_right_at_their_edges(name: str) -> None:
    function, shapes = WINDOWS[name]
    inputs = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    for ran in run_each(function, *inputs, targets=TARGETS):
        torch.testing.assert_close(ran.results[0], function(*inputs), rtol=1e-4, atol=1e-4)
        assert not ran.untouched


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["convolution", "max pool"])
def test_windows_of_any_type(name: str, dtype: torch.dtype) -> None:
    function, shapes = WINDOWS[name]
    check(function, *(drawn(*shape, seed=seed, dtype=dtype) / 4 for seed, shape in enumerate(shapes)))


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 17), (40, 1, 50), (2, 33, 16)], ids=str)
def test_scans_along_any_dimension(shape: tuple[int, ...], dimension: int) -> None:
    check_each(lambda x: (x.cumsum(dimension), x.cumprod(dimension)), drawn(*shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_scans_of_any_type(dtype: torch.dtype) -> None:
    x = whole(4, 40) if dtype == torch.int64 else drawn(4, 40, dtype=dtype)
    check(lambda x: (x.cumsum(1), x.cumsum(0)), x)


def test_a_long_scan_ends_as_right_as_it_begins() -> None:
    x = torch.rand(1, 1 << 17, generator=torch.Generator().manual_seed(5))
    (found,) = run(lambda x: x.cumsum(1), x).results
    wanted = x.double().cumsum(1)
    assert ((found - wanted).abs() / wanted).max() < 3e-7


# --- what cannot be read ----------------------------------------------------------------------------


def test_places_that_are_computed_are_gathered() -> None:
    index, table = whole(4, 5, low=0, high=10), drawn(10, 20)
    check(F.embedding, index, table)
    x, places = drawn(4, 20), whole(4, 7, low=0, high=20)
    check(lambda x, i: x.gather(1, i), x, places)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [16, 37, 64])
def test_rows_that_are_picked_are_read_side_by_side(width: int, dtype: torch.dtype) -> None:
    index, table = whole(5, low=-10, high=10), drawn(10, width, dtype=dtype)
    ran = check(lambda i, t: t[i] * 2, index, table)
    assert "vector.gather" not in ran.text
    assert "vector.transfer_read" in ran.text
    # the last place does not count up by one: in steps of two, backwards, and one place for all lanes
    steps = torch.arange(0, width, 2)
    check(lambda t, i: t[:, i] + 1, table, steps)
    check(lambda t, i: t[:, i] + 1, table, steps.flip(0))
    check(lambda t, i: t[i][:, ::2] + 1, table, index)
    check(lambda t, i: t.t()[i] + 1, table, whole(7, low=0, high=width))


def test_operations_of_unknown_kind_are_left_to_loops() -> None:
    x = drawn(4, 30)
    ran = run(lambda x: x.sort(1).values + x, x)
    torch.testing.assert_close(ran.results[0], x.sort(1).values + x)


# --- anything -------------------------------------------------------------------------------------

SIZES = st.integers(1, 20)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=st.lists(SIZES, min_size=1, max_size=4),
    dimension=st.integers(0, 3),
    order=st.permutations(range(4)),
    threads=st.sampled_from([1, 2] if find_openmp() else [1]),
    feature=st.sampled_from([None, "none"]),
)
def test_any_small_shape_is_right(
    shape: list[int], dimension: int, order: list[int], threads: int, feature: str | None
) -> None:
    rank = len(shape)
    d = dimension % rank
    moved = [each for each in order if each < rank]

    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.softmax(x.permute(moved), d)
        return y, torch.relu(y - 0.1).sum(d), x.argmax(d), x.cumsum(d), (x * x).mean()

    target = detect(threads=threads)
    if feature is not None and target.name == "x86_64":
        target = override(target, feature=feature)
    check(mixed, drawn(*shape), target=target)


# --- whether it did -------------------------------------------------------------------------------

WIDE = pytest.mark.skipif(Feature.AVX512 not in SERIAL.features, reason="counts AVX-512's instructions")


@WIDE
@pytest.mark.parametrize(
    ("function", "shapes", "wanted", "refused"),
    [
        (F.relu, [(64, 100)], r"v(max|cmp\w*)ps.*zmm", r"\b(max|cmp)ss\b"),
        (lambda x: x.sum(1), [(64, 1000)], r"vaddps.*zmm", None),
        (lambda x: x.sum(0), [(64, 1000)], r"vaddps.*zmm", None),
        (F.gelu, [(64, 100)], r"vfmadd\w+ps.*zmm", r"erff"),
        (lambda x: F.softmax(x, 1), [(64, 1000)], r"vfmadd\w+ps.*zmm", r"expf"),
        (torch.sin, [(64, 100)], r"_ZGVeN16v_sinf", r"\bsinf\b"),
        (lambda x, w: F.conv2d(x, w), [(1, 8, 30, 34), (16, 8, 3, 3)], r"vfmadd231ps.*zmm", None),
        (lambda x: x.T.contiguous(), [(64, 96)], r"(vperm|vunpck|vshuf|vblend|vmovup)\w*.*zmm", None),
    ],
    ids=["relu", "sum of rows", "sum of columns", "gelu", "softmax", "sin", "convolution", "transpose"],
)
def test_machine_code_has_vectors(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    wanted: str,
    refused: str | None,
) -> None:
    ran = run(function, *(drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)))
    text = ran.compiled.assembly()
    assert re.search(wanted, text)
    assert refused is None or not re.search(refused, text)


@WIDE
def test_a_convolution_multiplies_and_adds_more_than_it_loads() -> None:
    ran = run(lambda x, w: F.conv2d(x, w), drawn(1, 16, 58, 58), drawn(32, 16, 3, 3, seed=1))
    text = ran.compiled.assembly()
    products = len(re.findall(r"vfmadd231ps.*zmm", text))
    loads = len(re.findall(r"v(movups|broadcastss)\s+-?[0-9a-fx]*\(.*zmm", text))
    assert products > 1.5 * loads
