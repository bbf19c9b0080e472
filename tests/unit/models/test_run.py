"""A model file is compiled, checked and timed by the engine, and whatever is wrong with it is a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from kernelmark.errors import (
    ModelImportError,
    ModelLoweringError,
    ScheduleError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.models import Baseline, Dump, Mode, ModelRequest, run_model
from kernelmark.models import run as runs
from kernelmark.probe import Probe
from kernelmark.records import Cache, Check, read_run
from kernelmark.report.notes import note_text
from kernelmark.verify import Normalised, Tolerances
from torchsched import targets
from torchsched.bindings import available
from torchsched.elements import Element
from torchsched.failures import Stage
from torchsched.ingress import InputSpec, parse_input_shapes
from torchsched.openmp import find_openmp
from torchsched.targets import detect

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

File = Callable[[str], Path]


def shapes(text: str) -> tuple[InputSpec, ...]:
    return tuple(each for each in parse_input_shapes(text) if isinstance(each, InputSpec))


def stored_notes(params: Mapping[str, object]) -> list[str]:
    return str(params["notes"]).split("; ")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.spec("L3")
def test_a_model_is_compared_with_pytorch(model_file: File) -> None:
    told: list[str] = []
    found = run_model(ModelRequest(model_file("net"), pipeline=("loops",)), tell=told.append)
    row = found.ours
    assert row.check is Check.VERIFIED
    assert [output.output for output in row.outputs] == ["output[0]", "output[1]"]
    assert row.outputs[1].tolerance == "exact"
    assert row.params["input[0]"] == "float32[4, 8]"
    assert row.params["init_args"] == "6"
    assert "loops/f32 on" in row.backend
    assert row.timing is None
    assert found.tolerance == Normalised(1e-4)
    assert set(found.seconds) == set(Stage) - {Stage.RUN}
    assert told[-1] == "Executing the module..."
    assert tuple(told[:-1]) == detect().notes  # none on a machine that has everything
    assert row.params.get("notes", "") == "; ".join(detect().notes)
    assert found.folder is None


@pytest.mark.spec("L4")
def test_several_graphs_of_torch_compile_are_one_implementation(model_file: File) -> None:
    found = run_model(ModelRequest(model_file("broken_graph"), mode=Mode.TORCH_COMPILE, pipeline=("loops",)))
    assert found.ours.check is Check.VERIFIED
    assert found.ours.backend.startswith("2 graphs of torch.compile, loops on")
    assert found.seconds[Stage.COMPILE] > 0


@pytest.mark.spec("L5")
def test_a_benchmark_times_the_model_next_to_its_baselines(model_file: File, tmp_path: Path) -> None:
    told: list[str] = []
    request = ModelRequest(
        model_file("product"),
        benchmark=True,
        iterations=4,
        cache=Cache.WARM,
        pipeline=("loops",),
        out=tmp_path / "run",
        threads=1,
    )
    before = torch.get_num_threads()
    found = run_model(request, command=("kernel-bench", "product.py"), tell=told.append)
    assert torch.get_num_threads() == before
    assert told[-1] == "Running the benchmark..."
    assert stored_notes(found.ours.params) == told[:-1]
    assert told[0].startswith("one thread")
    names = [row.implementation for row in found.comparison]
    assert names == ["mlir", "eager", "inductor"]
    eager, inductor = (found.comparison.row(name) for name in ("eager", "inductor"))
    assert found.ours.timing is not None
    assert found.ours.timing.latency.samples == 4
    assert found.ours.roofline is not None
    assert found.ours.roofline.flops == 2 * 16**3
    assert eager.ratio is not None
    assert inductor.check in (Check.VERIFIED, Check.UNAVAILABLE)  # it needs a C++ compiler
    assert found.work is not None
    assert found.work.bytes == 3 * 4 * 16 * 16
    stored = read_run(tmp_path / "run")
    assert [row.implementation for row in stored.rows] == names
    assert stored.header.command == ("kernel-bench", "product.py")
    assert stored.header.device.threads == 1
    assert stored.end is not None
    assert stored.end.outcome == "completed"
    assert (tmp_path / "run" / "report.md").is_file()


def test_the_threads_that_the_code_uses_are_recorded(model_file: File) -> None:
    shapes = parse_input_shapes("512x64xf32xrnd,64x512xf32xrnd")
    small = run_model(ModelRequest(model_file("product"), pipeline=("loops",), threads=2))
    assert small.ours.params["threads"] == 1  # nothing in it is worth a thread
    large = run_model(ModelRequest(model_file("product"), pipeline=("loops",), threads=2, inputs=shapes))
    if find_openmp():
        assert large.ours.params["threads"] == 2
        assert "idle workers spin" in large.ours.params["openmp"]
    assert "malloc" in large.ours.params


def test_without_an_openmp_runtime_the_code_is_serial_right_and_a_line_says_so(
    model_file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "find_openmp", lambda: Probe(False, "no OpenMP runtime is installed"))
    told: list[str] = []
    shapes = parse_input_shapes("512x64xf32xrnd,64x512xf32xrnd")
    request = ModelRequest(model_file("product"), pipeline=("loops",), threads=2, inputs=shapes)
    found = run_model(request, tell=told.append)
    assert found.ours.check is Check.VERIFIED
    assert found.ours.params["threads"] == 1
    assert told[0] == "one thread rather than 2: no OpenMP runtime is installed"
    assert stored_notes(found.ours.params)[0] == told[0]


def test_a_stated_count_that_disagrees_is_told(model_file: File) -> None:
    told: list[str] = []
    request = ModelRequest(
        model_file("product"),
        benchmark=True,
        iterations=2,
        cache=Cache.WARM,
        pipeline=("loops",),
        baselines=(),
        gflops=2 * 2 * 16**3 / 1e9,
    )
    found = run_model(request, tell=told.append)
    assert "2 times as many" in told[-1]
    assert found.work is not None
    assert found.work.flops == 4 * 16**3


@pytest.mark.spec("L6")
def test_the_type_and_the_shapes_are_what_is_asked_for(model_file: File) -> None:
    request = ModelRequest(
        model_file("product"),
        element=Element.BF16,
        inputs=parse_input_shapes("8x4xbf16xrnd,4x5xbf16xrnd"),
        outputs=shapes("8x5xbf16"),
        pipeline=("loops",),
    )
    found = run_model(request)
    assert found.ours.params["input[1]"] == "bfloat16[4, 5]"
    assert "loops/bf16" in found.ours.backend
    assert found.tolerance == Normalised(2e-2)


# --- state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_what_a_model_writes_is_checked_and_put_back_between_calls(model_file: File, mode: Mode) -> None:
    request = ModelRequest(
        model_file("recurrent"),
        mode=mode,
        benchmark=True,
        iterations=4,
        cache=Cache.WARM,
        pipeline=("loops",),
        baselines=(Baseline.EAGER,),
    )
    found = run_model(request)
    assert [row.check for row in found.comparison] == [Check.VERIFIED] * 2
    checked = {output.output for output in found.ours.outputs}
    assert checked == {
        "output['out']",
        "output['state']['calls']",
        "output['state']['hidden']",
        "output['state']['input[0]']",
    }


# --- wrong answers -----------------------------------------------------------------------------------


def test_a_wrong_answer_is_a_failed_row_and_nothing_is_timed(
    model_file: File, schedule_file: File, tmp_path: Path
) -> None:
    request = ModelRequest(
        model_file("net"),
        pipeline=(str(schedule_file("subtract")),),
        benchmark=True,
        iterations=2,
        baselines=(),
        out=tmp_path / "run",
    )
    with pytest.raises(VerificationError, match="mlir does not match the reference") as raised:
        run_model(request)
    assert "second draw" not in str(raised.value)
    stored = read_run(tmp_path / "run")
    assert [(row.implementation, row.check, row.timing) for row in stored.rows] == [
        ("mlir", Check.FAILED, None)
    ]
    assert stored.end is not None
    assert stored.end.outcome == "failed"


def test_an_answer_that_is_right_on_one_draw_only_is_found(model_file: File, schedule_file: File) -> None:
    path, pipeline = model_file("product"), (str(schedule_file("first_factor")),)
    # the file's own second factor is the identity
    assert run_model(ModelRequest(path, pipeline=pipeline, second_draw=False)).ours.check is Check.VERIFIED
    with pytest.raises(
        VerificationError, match="right on the first draw of the inputs, and on a second one: mlir"
    ):
        run_model(ModelRequest(path, pipeline=pipeline))


def test_that_there_is_no_second_draw_is_told(model_file: File) -> None:
    told: list[str] = []
    run_model(ModelRequest(model_file("constant"), pipeline=("loops",)), tell=told.append)
    assert told[0] == "checked on one draw of the inputs: it has no float input that could be drawn again"


def test_a_tolerance_that_is_asked_for_is_the_one_that_counts(model_file: File) -> None:
    request = ModelRequest(
        model_file("product"), pipeline=("loops",), tolerance=Tolerances(atol=1.0, rtol=0.5)
    )
    found = run_model(request)
    assert found.ours.outputs[0].tolerance == "atol=1 rtol=0.5"


# --- what fails before anything is compared ----------------------------------------------------------


@pytest.mark.spec("L12")
def test_a_stage_that_refuses_the_model_is_a_row_with_the_stage(
    model_file: File, schedule_file: File, tmp_path: Path
) -> None:
    request = ModelRequest(model_file("net"), pipeline=(str(schedule_file("short")),), out=tmp_path / "run")
    with pytest.raises(ModelLoweringError, match="still holds"):
        run_model(request)
    (row,) = read_run(tmp_path / "run").rows
    assert row.check is Check.FAILED
    assert row.params["stage"] == "lower"
    assert "still holds" in note_text(row.note)


@pytest.mark.parametrize("mode", Mode)
def test_a_failure_has_the_same_class_in_both_modes(
    model_file: File, schedule_file: File, mode: Mode
) -> None:
    request = ModelRequest(model_file("net"), pipeline=(str(schedule_file("short")),), mode=mode)
    with pytest.raises(ModelLoweringError, match="still holds"):
        run_model(request)


def test_a_model_that_cannot_be_imported_says_so(model_file: File) -> None:
    with pytest.raises(ModelImportError):
        run_model(ModelRequest(model_file("no_export"), pipeline=("loops",)))


def test_a_model_that_torch_compile_does_not_trace_is_no_success(model_file: File) -> None:
    with pytest.raises(ModelImportError, match="handed over no graph of Model"):
        run_model(ModelRequest(model_file("untraced"), pipeline=("loops",), mode=Mode.TORCH_COMPILE))
    assert run_model(ModelRequest(model_file("untraced"), pipeline=("loops",))).ours.check is Check.VERIFIED


@pytest.mark.spec("L4")
def test_a_recurrent_layer_is_compiled_in_torch_compile_mode_too(model_file: File) -> None:
    run = run_model(ModelRequest(model_file("lstm"), mode=Mode.TORCH_COMPILE))
    assert run.ours.check is Check.VERIFIED
    assert run.ours.backend.startswith("1 graph of torch.compile")
    # unrolled, its 2,000 steps would be more calls than an import takes


def test_another_output_than_was_said_is_an_error_of_use(model_file: File) -> None:
    request = ModelRequest(model_file("product"), outputs=shapes("16x17"), pipeline=("loops",))
    with pytest.raises(UsageError, match="--output-shape says 16x17"):
        run_model(request)


def test_an_unknown_schedule_is_told_before_the_models_file_runs(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("raise RuntimeError('it ran')\n")
    with pytest.raises(ScheduleError, match="no schedule 'lops'"):
        run_model(ModelRequest(path, pipeline=("lops",), element=Element.F32))


def test_without_torch_mlir_the_fix_is_said(model_file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise UnavailableError("torch_mlir is not installed (pip install 'kernelmark[mlir]')")

    monkeypatch.setattr(runs, "bindings", missing)
    with pytest.raises(UnavailableError, match=r"pip install 'kernelmark\[mlir\]'"):
        run_model(ModelRequest(model_file("net")))


# --- what is written ------------------------------------------------------------------------------------


@pytest.mark.spec("L11")
@pytest.mark.parametrize("mode", Mode)
def test_machine_code_is_written_where_the_command_is_called(
    model_file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    told: list[str] = []
    request = ModelRequest(
        model_file("broken_graph"), pipeline=("loops",), mode=mode, dumps=(Dump.ASSEMBLY, Dump.OBJECT)
    )
    if mode is Mode.IMPORT:
        request = ModelRequest(model_file("product"), pipeline=("loops",), dumps=(Dump.ASSEMBLY, Dump.OBJECT))
    run_model(request, tell=told.append)
    names = {
        Mode.IMPORT: ["product.o", "product.s"],
        Mode.TORCH_COMPILE: [f"broken_graph.{number}.{kind}" for number in (1, 2) for kind in "os"],
    }[mode]
    assert sorted(each.name for each in folder.iterdir()) == names
    assert f"Assembly written to {names[1]}" in told
    assert "ret" in (folder / names[1]).read_text()
    assert (folder / names[0]).read_bytes()[:4] == b"\x7fELF"


@pytest.mark.spec("L11")
@pytest.mark.parametrize("mode", Mode)
def test_the_observer_sees_every_graph_from_its_import_on(model_file: File, mode: Mode) -> None:
    seen: list[str] = []
    run_model(
        ModelRequest(
            model_file("broken_graph" if mode is Mode.TORCH_COMPILE else "net"),
            pipeline=("loops",),
            mode=mode,
        ),
        observer=lambda name, _: seen.append(name),
    )
    imports = [name for name in seen if name.rpartition(": ")[2] == "import"]
    assert len(imports) == (2 if mode is Mode.TORCH_COMPILE else 1)
    assert seen[0] == imports[0]
