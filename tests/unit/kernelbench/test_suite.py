from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import SuiteError, UsageError
from kernelmark.kernelbench.statuses import Status, read_expected
from kernelmark.kernelbench.suite import Entry, Sizes, load_suite, select
from kernelmark.manifest.expressions import parse
from kernelmark.verify import Elementwise, Exact, check_outputs
from torchsched.ingress import parse_input_shapes

SUITES = Path(__file__).parents[3] / "examples" / "KernelBench"
GOOD = """\
- kernel: level1/1_Square_matrix_multiplication_.py
  input_shapes: [1024x1024, 1024x1024]
  initializations: [rnd, id]
  output_shape: 1024x1024
  init_args: []
  gflops: (1024 * 1024 * 1024 * 2) / 1e9
  pipeline: matmul
"""


def suite_of(tmp_path: Path, text: str) -> tuple[Entry, ...]:
    file = tmp_path / "suite.yaml"
    file.write_text(text)
    return load_suite(file).entries


def shipped(level: int) -> tuple[Entry, ...]:
    return load_suite(SUITES / f"level{level}.yaml").entries


@pytest.mark.spec("L13")
@pytest.mark.parametrize(("level", "count"), [(1, 100), (2, 100), (3, 50)])
def test_the_suites_name_every_kernel_of_a_level_once_with_sizes_that_can_be_read(
    level: int, count: int
) -> None:
    entries = shipped(level)
    assert len({entry.kernel for entry in entries}) == count
    numbers = Counter(int(entry.kernel.split("/")[1].split("_")[0]) for entry in entries)
    assert numbers == Counter(range(1, count + 1))
    for entry in entries:
        for sizes in Sizes:
            run = entry.at(sizes)
            assert len(parse_input_shapes(run.inputs("bf16"))) == len(run.input_shapes)
            assert len(parse_input_shapes(run.output("f32") or "")) == len(run.output_shape) > 0
            if run.gflops is not None:
                value = parse(run.gflops).evaluate({})
                assert isinstance(value, float)
                assert value > 0


def test_the_suites_own_sizes_move_little_beside_the_original_ones() -> None:
    for entry in (*shipped(1), *shipped(2)):
        assert entry.suite.bytes is not None
        assert entry.suite.bytes < 45e6, entry.kernel
        assert entry.original is not None


@pytest.mark.spec("L1")
def test_a_prefix_selects_exactly_the_kernels_that_start_with_it() -> None:
    entries = shipped(1)
    assert [e.kernel for e in select(entries, ["level1/2_"])] == [
        "level1/2_Standard_matrix_multiplication_.py"
    ]
    numbers = {e.kernel.split("/")[1].split("_")[0] for e in select(entries, ["level1/2"])}
    assert numbers == {"2", *map(str, range(20, 30))}
    assert select(entries) == entries


@pytest.mark.spec("L1")
@pytest.mark.parametrize(
    ("prefix", "near"),
    [("level1/relu", "level1/19_ReLU.py"), ("levle1/19_", "level1/19_ReLU.py"), ("Level1/4", "level1/40_")],
)
def test_a_prefix_that_fits_nothing_is_told_what_is_near_it(prefix: str, near: str) -> None:
    with pytest.raises(UsageError, match="no kernel's name starts with it") as error:
        select(shipped(1), [prefix])
    said = str(error.value)
    assert near in said
    names = [name for name in said.split("did you mean ")[1].rstrip("?").split(", ") if "more" not in name]
    assert set(names) <= {entry.kernel for entry in shipped(1)}


def test_an_entry_in_the_documented_syntax_is_read_whole(tmp_path: Path) -> None:
    (entry,) = suite_of(tmp_path, GOOD)
    assert entry.kernel == "level1/1_Square_matrix_multiplication_.py"
    assert entry.level == "level1"
    assert entry.pipeline == "matmul"
    assert entry.suite.inputs("bf16") == "1024x1024xbf16xrnd,1024x1024xbf16xid"
    assert entry.suite.output("bf16") == "1024x1024xbf16x0"
    assert entry.suite.init_args == ()
    assert entry.original is None
    with pytest.raises(SuiteError, match=r"suite\.yaml:1.*no 'original' sizes"):
        entry.at(Sizes.ORIGINAL)


def test_element_types_of_their_own_literals_and_tuples_are_kept(tmp_path: Path) -> None:
    (entry,) = suite_of(
        tmp_path,
        """\
- kernel: level1/x.py
  input_shapes: [4096, 32xi64, "=3.14", f32]
  initializations: [rnd, rnd10, ~, rnd]
  output_shape: [8x8, 4xi64]
  init_args: [64, "(3, 5)", [1, 2], 1.0, true, ~]
  tolerances: {atol: 1e-3, rtol: 0}
  dtypes: [f32, bf16]
""",
    )
    assert entry.suite.inputs("f16") == "4096xf16xrnd,32xi64xrnd10,=3.14,f16xrnd"
    assert entry.suite.output("f16") == "8x8xf16x0,4xi64x0"
    assert entry.suite.init_args == (64, (3, 5), [1, 2], 1.0, True, None)
    assert entry.tolerances is not None
    assert entry.tolerances.atol == 1e-3
    assert entry.dtypes == ("f32", "bf16")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("  pipeline: matmul", "  pipelin: matmul", 7, "did you mean 'pipeline'"),
        ("[rnd, id]", "[rnd]", 3, "one for each of the 2"),
        ("[rnd, id]", "[rnd, ~]", 3, "a tensor needs a word"),
        ("init_args: []", "init_args: 3", 5, "a list of constructor arguments"),
        ("init_args: []", 'init_args: ["(3, x)"]', 5, "no Python tuple"),
        ("kernel: level1/1_Square_matrix_multiplication_.py", "kernel: 1_Square", 1, "LEVEL/FILE.py"),
        ("  input_shapes: [1024x1024, 1024x1024]\n", "", 1, "no 'input_shapes'"),
        ("  pipeline: matmul", "  pipeline: [a]", 7, "text, not a list"),
        ("  pipeline: matmul", "  bytes: -1", 7, "not negative"),
        ("  pipeline: matmul", "  tolerances: {atol: -1, rtol: 0}", 7, "not negative"),
        ("[1024x1024, 1024x1024]", "[64x, 1024x1024]", 2, "has an empty part"),
        ("output_shape: 1024x1024", "output_shape: 1024xx", 4, "has an empty part"),
        ("gflops: (1024 * 1024 * 1024 * 2) / 1e9", "gflops: __import__('os')", 6, "gflops"),
        ("  pipeline: matmul", "  outputs: 2", 7, "unknown key"),
        ("  pipeline: matmul", "  notes: none", 7, "unknown key"),
        ("  pipeline: matmul", "  original: 3", 7, "a mapping of sizes"),
        ("  pipeline: matmul", "  original: {input_shape: [1]}", 7, "did you mean 'input_shapes'"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    with pytest.raises(SuiteError) as error:
        suite_of(tmp_path, GOOD.replace(old, new))
    assert error.value.line == line
    assert words in str(error.value)


def test_a_kernel_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r":8.*line 1 already"):
        suite_of(tmp_path, GOOD + GOOD)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{}", "this is a mapping"), ("- 3", "not an int"), ("[]", "there is no kernel in it")],
)
def test_what_is_no_list_of_entries_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        suite_of(tmp_path, text)


@given(st.text(max_size=60))
def test_no_text_ends_in_anything_but_a_suite_or_an_error_of_its_own(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "s.yaml"
        file.write_text("- kernel: level1/a.py\n  input_shapes: [2]\n  pipeline: " + text, encoding="utf-8")
        with suppress(SuiteError):
            load_suite(file)


def test_the_tolerance_of_a_mean_that_is_zero_lets_rounding_pass_and_nothing_wrong() -> None:
    entry = next(each for each in shipped(2) if each.tolerances is not None)
    assert entry.tolerances is not None
    rule = Elementwise(entry.tolerances.atol, entry.tolerances.rtol)
    channels, groups, x = 24, 8, torch.randn(4, 24, 22, 30, 30, generator=torch.Generator().manual_seed(0))

    def mean(
        norm: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        return norm(x.to(dtype)).mean(dim=(1, 2, 3, 4)).float()

    def by_group(t: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(t, groups)

    right = mean(by_group)
    for same in (mean(by_group, torch.float64), mean(lambda t: by_group(t + 3))):
        assert check_outputs(same, right, Exact(tolerance=rule)).passed
    for wrong in (
        mean(lambda t: t),
        mean(lambda t: t / t.std()),
        mean(lambda t: by_group(t) * 0.999 + 0.001),
        mean(lambda t: torch.nn.functional.group_norm(t[:, : channels - 1].clone(), 1).relu()),
    ):
        assert not check_outputs(wrong, right, Exact(tolerance=rule)).passed


def test_the_tolerance_of_what_a_threshold_leaves_lets_rounding_pass_and_nothing_wrong() -> None:
    entry = next(each for each in shipped(2) if each.kernel.startswith("level2/93_"))
    assert entry.tolerances is not None
    rule = Elementwise(entry.tolerances.atol, entry.tolerances.rtol)
    torch.manual_seed(0)
    convolution = torch.nn.ConvTranspose2d(64, 128, 4, stride=2)
    x = torch.rand(1, 64, 24, 24) * 2 - 1

    def answer(dtype: torch.dtype = torch.float32, add: float = 0.5, multiply: float = 2.0) -> torch.Tensor:
        with torch.no_grad():
            summed = convolution.to(dtype)(x.to(dtype)) + add
            return (torch.nn.functional.gelu(summed.clamp(max=0)) * multiply).float()

    right = answer()
    assert check_outputs(answer(torch.float64), right, Exact(tolerance=rule)).passed
    for wrong in (torch.zeros_like(right), answer(add=0.499), answer(multiply=1.99), answer(torch.bfloat16)):
        assert not check_outputs(wrong, right, Exact(tolerance=rule)).passed


@pytest.mark.parametrize("path", sorted((SUITES / "expected").glob("*.txt")), ids=lambda path: path.stem)
def test_a_kept_list_names_kernels_of_its_suite_that_are_not_verified(path: Path) -> None:
    suite, dtype, *mode = path.stem.split("-", 2)
    kept = read_expected(path)
    assert kept.keys() <= {entry.kernel for entry in load_suite(SUITES / f"{suite}.yaml").entries}
    assert dtype in ("f32", "bf16", "f16", "f64")
    assert mode in ([], ["torch-compile"])
    assert Status.VERIFIED not in kept.values()
