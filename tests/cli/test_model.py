"""``kernelmark model`` and ``kernel-bench`` as a user runs them: the lines on stdout, the files, the exit codes.

Most run in this process, so that torch is imported once; what only a process of its own shows has one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from kernelmark.cli import main
from torchsched.bindings import available
from torchsched.descriptors import SHIPPED
from torchsched.targets import detect

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

PRODUCT = """
import torch

class Model(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        return a @ b * self.scale

def get_inputs():
    return [torch.rand(8, 8), torch.rand(8, 8)]
"""
WRONG = """
def nothing(module, *, target):
    for operation in list(module.body.operations[0].regions[0].blocks[0].operations):
        if operation.operation.name == "linalg.matmul":
            operation.operation.results[0].replace_all_uses_with(operation.operation.operands[2])
            operation.operation.erase()
"""


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Run the command in this process, in a folder of its own."""
    torch._dynamo.reset()
    (tmp_path / "product.py").write_text(PRODUCT)
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELMARK_DEBUG", raising=False)

    def call(*words: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main.main(["model", *words])
        captured = capfd.readouterr()
        return Done(int(end.value.code or 0), captured.out, captured.err)

    return call


Run = Callable[..., Done]


def _without_notes(text: str) -> list[str]:
    """Give the lines without those that say what this machine lacks; one with two cores and AVX-512 has none."""
    notes = detect().notes
    return [line for line in text.splitlines() if line not in notes]


# --- verified ----------------------------------------------------------------------------------------------


@pytest.mark.spec("L2")
@pytest.mark.parametrize("mode", [(), ("--torch-compile",)])
def test_a_right_answer_ends_with_0_and_the_lines_that_scripts_read(run: Run, mode: tuple[str, ...]) -> None:
    done = run("product.py", "--pipeline", "loops", *mode)
    assert done.code == 0, done.stderr
    lines = _without_notes(done.stdout)
    assert lines[:3] == [
        "Executing the module...",
        "Success: The output of the compiled model matches the reference output.",
        "Tolerance: 0.0001",
    ]
    assert re.fullmatch(r"Compiling took: import .*, lower .*, compile .*", lines[3])
    assert done.stderr == ""


@pytest.mark.spec("L5")
def test_a_benchmark_says_the_mean_the_figure_and_shows_the_table(run: Run) -> None:
    done = run(
        "product.py",
        *("--pipeline", "loops", "--benchmark", "--iterations", "4", "--baselines", "eager"),
        *("--gflops", "(8 * 8 * 8 * 2) / 1e9", "--cache", "warm", "--out", "kept"),
    )
    assert done.code == 0, done.stderr
    lines = _without_notes(done.stdout)
    assert lines[0] == "Running the benchmark..."
    mean = re.fullmatch(r"4 runs: (\S+) seconds", lines[1])
    assert mean is not None
    assert lines[2] == "Success: The output of the compiled model matches the reference output."
    assert lines[3] == "Tolerance: 0.0001"
    figure = re.fullmatch(r"Performance: (\S+) GFLOPS", lines[5])
    assert figure is not None
    assert float(figure[1]) == pytest.approx(1024e-9 / float(mean[1]), abs=0.006)
    assert re.search(r"^ *mlir +loops/f32 on", done.stdout, re.MULTILINE)
    assert re.search(r"^ *eager +torch eager", done.stdout, re.MULTILINE)
    assert "the report is kept/report.md" in done.stdout
    assert Path("kept/report.md").is_file()


@pytest.mark.spec("L9")
def test_shapes_types_and_arguments_are_what_the_command_line_says(run: Run) -> None:
    done = run(
        "product.py",
        *("--pipeline", "loops", "--dtype", "bf16", "--input-shapes", "8x4xbf16xrnd,4x6xbf16xrnd"),
        *("--output-shape", "8x6xbf16x0", "--init-args", "[2.0]", "--out", "kept"),
    )
    assert done.code == 0, done.stderr
    assert "Tolerance: 0.02" in done.stdout
    assert "bfloat16[4, 6]" in Path("kept/report.md").read_text()


@pytest.mark.spec("L9")
@pytest.mark.parametrize("text", ["None", "[]"])
def test_the_files_own_arguments_and_none_at_all_can_be_asked_for(run: Run, text: str) -> None:
    done = run(
        "product.py",
        "--pipeline",
        "loops",
        "--init-args",
        text,
        "--infer-shapes",
        "--rtol",
        "0.01",
        "--atol",
        "0.01",
    )
    assert done.code == 0, done.stderr
    assert "Tolerance: 0.01" in done.stdout


# --- printed and written ---------------------------------------------------------------------------------


@pytest.mark.spec("L11")
def test_modules_are_printed_as_imported_as_compiled_and_after_each_step(run: Run) -> None:
    done = run("product.py", "--pipeline", "loops", "--print-original-module")
    assert re.findall(r"^// ----- (.*) -----$", done.stdout, re.MULTILINE) == ["import"]
    assert "linalg.matmul" in done.stdout
    assert run("product.py", "--pipeline", "loops", "-print-original-module").stdout.startswith(
        "// ----- import"
    )
    done = run("product.py", "--pipeline", "loops", "--print-optimized-module")
    (name,) = re.findall(r"^// ----- (.*) -----$", done.stdout, re.MULTILINE)
    assert name != "import"
    assert "llvm.func @main" in done.stdout
    assert "linalg" not in done.stdout
    done = run("product.py", "--pipeline", "loops", "--print-mlir-after-all")
    names = re.findall(r"^// ----- (.*) -----$", done.stdout, re.MULTILINE)
    assert names[:2] == ["import", "results to arguments"]
    assert "finalize-memref-to-llvm" in names
    assert done.stdout.index(names[-1]) < done.stdout.index("Executing the module...")


@pytest.mark.spec("L11")
def test_each_graph_of_torch_compile_is_printed_under_its_number(run: Run) -> None:
    done = run(
        "product.py",
        "--pipeline",
        "loops",
        "--torch-compile",
        "--print-original-module",
        "--print-optimized-module",
    )
    names = re.findall(r"^// ----- (.*) -----$", done.stdout, re.MULTILINE)
    assert names[0] == "graph 1 (inference): import"
    assert len(names) == 2
    assert names[1].startswith("graph 1 (inference): ")


@pytest.mark.spec("L11")
def test_assembly_and_object_are_written_into_the_working_folder(run: Run) -> None:
    done = run("product.py", "--pipeline", "loops", "--dump-assembly", "--dump-object")
    assert "Assembly written to product.s" in done.stdout
    assert "Object written to product.o" in done.stdout
    assert Path("product.s").is_file()
    assert Path("product.o").is_file()


# --- what goes wrong ---------------------------------------------------------------------------------------


def test_a_wrong_answer_ends_with_1_and_shows_the_row(run: Run) -> None:
    Path("s.yaml").write_text(
        f"pipeline:\n  - transform: wrong.py:nothing\n  - include: {SHIPPED / 'loops.yaml'}\n"
    )
    done = run("product.py", "--pipeline", "./s.yaml")
    assert done.code == 1
    assert "Success" not in done.stdout
    assert "failed" in done.stdout
    assert done.stderr.startswith("error: mlir does not match the reference: output (float32, 8×8)")


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "MODEL.py is missing"),
        (("none.py",), "none.py is no file"),
        (("product.py", "--pipeline", "lops"), r"no schedule 'lops' .*did you mean 'loops'"),
        (("product.py", "--pipeline", "./none.yaml"), r"there is no file \./none\.yaml"),
        (("product.py", "--schedules", "none"), "the root of schedules none is no folder"),
        (("product.py", "--param", "mr"), "--param mr: write NAME=VALUE"),
        (("product.py", "--param", "mr=1", "--param", "mr=2"), "--param mr is given twice: 1 and 2"),
        (("product.py", "--pipeline", "loops", "--param", "mr=1"), "parameter 'mr' is not declared"),
        (("product.py", "--dtype", "f8"), "'f8' is no element type"),
        (("product.py", "--input-shapes", "8x8xq"), r"input '8x8xq'"),
        (("product.py", "--input-shapes", "8x8", "--infer-shapes"), "use one"),
        (("product.py", "--input-shapes", "8x8xf32xrnd"), r"forward takes .* 1 input"),
        (("product.py", "--output-shape", "8x9"), "--output-shape says 8x9"),
        (("product.py", "--init-args", "[1"), "--init-args"),
        (("product.py", "--gflops", "__import__('os')"), "gflops"),
        (("product.py", "--feature", "avx9"), r"feature 'avx9' is not known"),
        (("product.py", "--target", "z80"), r"target 'z80' is not known"),
        (("product.py", "--threads", "0"), "--threads 0"),
        (("product.py", "--iterations", "1"), "--iterations 1"),
        (("product.py", "--baselines", "eagr"), r"did you mean 'eager'"),
        (("product.py", "--output-shape", "=3"), "--output-shape =3: write sizes"),
        (("product.py", "--tolerance", "-1"), "the command line: tolerance = -1"),
        (("product.py", "--tolerance", "nan"), "the command line: tolerance = nan"),
        (("product.py", "--timeout", "nan"), "--timeout nan"),
        (("product.py", "--timeout", "inf"), "--timeout inf"),
        (("product.py", "--bytes", "-4"), "bytes: '-4' is -4; give the bytes of one call"),
        (("product.py", "--gflops", "1/0"), "gflops: .*division by zero"),
        (("product.py", "--device", "tpu"), "--device tpu.* torch has no such device"),
        (("product.py", "--input-shapes", "99999999999999x99999999,8x8"), "input 9+x9+xrnd cannot be made"),
        (("product.py", "--dtype", ""), "'' is no element type"),
        (("product.py", "--pipeline", ""), "no schedule ''"),
        (("product.py", "--schedules", "product.py"), "the root of schedules product.py is no folder"),
    ],
)
def test_what_cannot_be_run_as_asked_ends_with_2(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.code == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert re.search(message, done.stderr, re.DOTALL), done.stderr
    assert "Traceback" not in done.stderr


def test_what_this_machine_lacks_ends_with_3(run: Run) -> None:
    other = "aarch64" if detect().name != "aarch64" else "x86_64"
    done = run("product.py", "--target", other)
    assert done.code == 3
    assert f"target {other}: this machine is" in done.stderr


@pytest.mark.parametrize(
    ("model", "words", "stage"),
    [
        ("x * float(x.sum())", ("--pipeline", "loops"), "import"),
        ("x + 1", ("--pipeline", "./short.yaml"), "lower"),
        ("x + 1", ("--pipeline", "./missing.yaml"), "compile"),
    ],
)
@pytest.mark.spec("L12")
def test_a_model_that_does_not_get_through_a_stage_ends_with_4_and_names_it(
    run: Run, model: str, words: tuple[str, ...], stage: str
) -> None:
    Path("m.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {model}\ndef get_inputs():\n    return [torch.rand(3)]\n"
    )
    Path("short.yaml").write_text("pipeline:\n  - pass: cse\n")
    Path("call.py").write_text(
        "from torchsched.bindings import bindings\n"
        "def call(module, *, target):\n"
        "    ir = bindings('ir')\n"
        "    with module.context, ir.Location.unknown():\n"
        "        module.body.append(ir.Operation.parse('func.func private @no_such_symbol()'))\n"
        "        block = module.body.operations[0].regions[0].blocks[0]\n"
        "        with ir.InsertionPoint.at_block_begin(block):\n"
        "            name = ir.FlatSymbolRefAttr.get('no_such_symbol')\n"
        "            ir.Operation.create('func.call', attributes={'callee': name})\n"
    )
    Path("missing.yaml").write_text(
        f"pipeline:\n  - transform: call.py:call\n  - include: {SHIPPED / 'loops.yaml'}\n"
    )
    done = run("m.py", *words, "--out", "kept")
    assert done.code == 4, done.stderr
    # torch.export writes to stderr as well
    assert re.search(rf"^error: (\S+:\d+: )?{stage}: ", done.stderr, re.MULTILINE), done.stderr
    assert f"`{stage}`" in Path("kept/report.md").read_text()


# --- schedules ---------------------------------------------------------------------------------------------


@pytest.mark.spec("L7")
def test_schedules_are_listed_with_a_star_at_those_that_would_be_taken(run: Run) -> None:
    Path("mine").mkdir()
    Path("mine/loops.yaml").write_text("description: my own loops\npipeline:\n  - pass: cse\n")
    Path("mine/bad.yaml").write_text("pipelin: []\n")
    done = run("--list-schedules", "--schedules", "mine")
    assert done.code == 0, done.stderr
    rows = {
        (line.split()[1], "shipped" in line): line
        for line in done.stdout.splitlines()
        if line.startswith("*") and len(line.split()) > 3
    }
    assert ("loops", False) in rows
    assert ("loops", True) not in rows
    assert ("default", True) in rows
    assert "my own loops" in done.stdout
    assert re.search(r"cannot be used: mine/bad\.yaml:1", done.stdout)


@pytest.mark.spec("L7")
def test_a_schedule_is_explained_for_the_target_that_is_asked_for(run: Run) -> None:
    Path("s.yaml").write_text(
        "description: two tiles\nparameters:\n  mr: {default: 8, choices: [4, 8]}\n"
        "pipeline:\n  - pass: canonicalize{max-iterations=$mr}\n"
        "  - pass: cse\n    when: aarch64\n  - pass: cse\n    when: uses tm_tensor\n"
    )
    done = run("--explain-schedule", "--pipeline", "./s.yaml", "--param", "mr=4", "--target", "x86_64")
    assert done.code == 0, done.stderr
    text = done.stdout
    assert "schedule: ./s.yaml: two tiles" in text
    assert "file: s.yaml" in text
    assert re.search(r"mr +4 +s\.yaml:3 +4, 8; by default 8", text)
    assert re.search(r"^1 +pass +s\.yaml:5 +canonicalize\{max-iterations=4\}", text, re.MULTILINE)
    assert re.search(r"^ +pass +s\.yaml:6 +cse +\(left out: needs 'aarch64'\)", text, re.MULTILINE)
    assert re.search(
        r"^2 +pass +s\.yaml:8 +cse +\(where the module has operations of tm_tensor\)", text, re.MULTILINE
    )
    other = run("--explain-schedule", "--pipeline", "./s.yaml", "--target", "aarch64").stdout
    assert "target: aarch64" in other
    assert "left out" not in other


@pytest.mark.spec("L7")
@pytest.mark.parametrize("pipeline", ["matmul", "elementwise"])
@pytest.mark.parametrize("feature", [(), ("--feature", "sve")])
def test_a_shipped_schedule_is_explained_for_aarch64(
    run: Run, pipeline: str, feature: tuple[str, ...]
) -> None:
    done = run(
        "--explain-schedule", "--pipeline", pipeline, "--target", "aarch64", *feature, "--dtype", "bf16"
    )
    assert done.code == 0, done.stderr
    assert f"target: aarch64 {'sve' if feature else ''}" in done.stdout
    assert "vectors of 128 bits" in done.stdout
    steps = [line for line in done.stdout.splitlines() if "convert-vector-to-llvm" in line]
    assert ["left out" in line for line in steps] == [True, False]  # with x86's instructions, and without


def test_an_unknown_pass_is_found_when_a_schedule_is_explained(run: Run) -> None:
    Path("s.yaml").write_text("pipeline:\n  - pass: canonicalise\n")
    done = run("--explain-schedule", "--pipeline", "./s.yaml")
    assert done.code == 2
    assert re.search(r"s\.yaml:2: .*did you mean 'canonicalize'", done.stderr)


# --- the program -------------------------------------------------------------------------------------------


def test_kernel_bench_is_the_same_command(tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text(PRODUCT)
    program = (
        "import sys; from kernelmark.cli import kernel_bench; sys.argv[0] = 'kernel-bench'; kernel_bench()"
    )

    def bench(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=250
        )

    done = bench("product.py", "--pipeline", "loops")
    assert done.returncode == 0, done.stderr
    assert "Success: The output of the compiled model matches the reference output." in done.stdout
    assert done.stderr == ""
    shown = bench("--help")
    assert shown.stdout.startswith("Usage: kernel-bench [OPTIONS] MODEL.py")
    assert "--explain-schedule" in shown.stdout


def test_the_help_of_the_command_imports_no_framework() -> None:
    program = (
        "import sys, kernelmark.cli\n"
        "try:\n    kernelmark.cli.main(['model', '--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Usage: kernelmark model [OPTIONS] MODEL.py" in done.stdout
    loaded = done.stdout.partition("LOADED")[2].split()
    assert not set(loaded) & {"torch", "torch_mlir", "numpy"}


def test_an_unknown_option_is_refused(run: Run) -> None:
    done = run("product.py", "--pipelin", "loops")
    assert done.code == 2
    assert "--pipelin" in done.stderr
