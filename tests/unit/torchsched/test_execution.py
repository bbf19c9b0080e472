"""Lowered modules become machine code that is called with tensors, and nothing wrong gets as far as the code."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import ModelCompileError, ModelRunError, UnavailableError, UsageError
from torchsched import dumping, execution, parallel, symbols
from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.openmp import find_openmp
from torchsched.signature import TensorType

Lower = Callable[..., Any]

needs_openmp = pytest.mark.skipif(not find_openmp(), reason=find_openmp().detail)


def _type(*shape: int, element: str = "f32") -> TensorType:
    return TensorType(shape, Element(element))


def _pointwise(type_: TensorType, body: str, inputs: int = 1) -> str:
    """Write ``main`` that computes ``%r`` from ``%a0``, ``%a1``, ... element by element."""
    memref, element = type_.memref, type_.element.mlir
    axes = ", ".join(f"d{i}" for i in range(len(type_.shape)))
    same = f"affine_map<({axes}) -> ({axes})>"
    names = ", ".join(f"%x{i}" for i in range(inputs))
    return f"""
    func.func @main({", ".join(f"%x{i}: {memref}" for i in range(inputs))}, %y: {memref})
        attributes {{llvm.emit_c_interface}} {{
      linalg.generic {{
          indexing_maps = [{", ".join([same] * (inputs + 1))}],
          iterator_types = [{", ".join(['"parallel"'] * len(type_.shape))}]}}
          ins({names} : {", ".join([memref] * inputs)}) outs(%y : {memref}) {{
        ^bb0({", ".join(f"%a{i}: {element}" for i in range(inputs))}, %old: {element}):
          {body}
          linalg.yield %r : {element}
      }}
      return
    }}"""


ADD = {True: "%r = arith.addf %a0, %a1 : {0}", False: "%r = arith.addi %a0, %a1 : {0}"}


def _adder(lower_text: Lower, *shape: int, element: str = "f32") -> Any:
    type_ = _type(*shape, element=element)
    body = ADD[type_.element.is_float].format(type_.element.mlir)
    return compile_lowered(lower_text(_pointwise(type_, body, 2), [type_, type_], [type_]))


def _numbers(type_: TensorType) -> torch.Tensor:
    return torch.randint(0, 2 if type_.element is Element.I1 else 50, type_.shape).to(type_.element.torch)


EVERY_ELEMENT = [each.value for each in Element]


@pytest.mark.parametrize("element", EVERY_ELEMENT)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 2), (0, 4)])
def test_every_element_type_and_rank_goes_in_and_out(
    lower_text: Lower, element: str, shape: tuple[int, ...]
) -> None:
    type_ = _type(*shape, element=element)
    a, b = _numbers(type_), _numbers(type_)
    (out,) = _adder(lower_text, *shape, element=element)(a, b)
    expected = a ^ b if element == "i1" else a + b  # the sum of two bits, without the carry
    assert out.dtype is expected.dtype
    assert torch.equal(out, expected)


def test_a_bound_call_reads_what_its_tensors_hold_now(lower_text: Lower) -> None:
    compiled = _adder(lower_text, 64)
    a, b, out = torch.ones(64), torch.ones(64), torch.zeros(64)
    bound = compiled.bind([a, b], [out])
    assert bound() is None
    assert out.eq(2).all()
    a.fill_(5)
    assert bound.run("anything") is out
    assert out.eq(6).all()


def test_results_are_allocated_where_none_are_given(lower_text: Lower) -> None:
    bound = _adder(lower_text, 8).bind([torch.ones(8), torch.ones(8)])
    assert bound.run().tolist() == [2.0] * 8
    assert bound.results[0].data_ptr() % 64 == 0


def test_what_is_bound_outlives_the_compiled_model_and_its_tensors(lower_text: Lower) -> None:
    compiled = _adder(lower_text, 1000)
    bound = compiled.bind([torch.ones(1000), torch.ones(1000)])
    compiled.close()
    del compiled
    gc.collect()
    rubbish = [torch.full((1000,), 9.0) for _ in range(50)]
    assert bound.run().eq(2).all()
    assert rubbish


def test_closing_lets_go_of_code_module_and_context(lower_text: Lower) -> None:
    compiled = _adder(lower_text, 4)
    lowered, engine = weakref.ref(compiled._lowered), weakref.ref(compiled._code)
    with compiled:
        compiled(torch.ones(4), torch.ones(4))
    gc.collect()
    assert lowered() is None
    assert engine() is None
    assert compiled.closed
    for use in (
        lambda: compiled(torch.ones(4), torch.ones(4)),
        lambda: compiled.bind([torch.ones(4), torch.ones(4)]),
        compiled.assembly,
        lambda: compiled.llvm_module,
    ):
        with pytest.raises(ModelRunError, match="was closed; compile it again"):
            use()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: x.reshape(4, 2), r"argument 'x1' has shape \(4, 2\); it takes \(2, 4\)"),
        (lambda x: x.double(), "argument 'x1' has dtype float64; it takes float32"),
        (lambda x: x.reshape(4, 2).t(), r"has strides \(1, 2\); it takes contiguous memory"),
        (lambda x: torch.ones(9)[1:].view(2, 4), "begins 4 bytes past a multiple of 64"),
        (lambda x: x.to("meta"), "is on meta; compiled models run on the CPU"),
        (lambda x: x.to_sparse(), "has layout torch.sparse_coo; it takes a strided tensor"),
        (lambda x: torch._neg_view(x), "is a lazy negative view"),
        (lambda x: [1.0] * 8, "argument 'x1' is a list; it takes a tensor of 2x4xf32"),
    ],
)
def test_a_tensor_that_the_code_cannot_take_is_refused_by_name(
    lower_text: Lower, wrong: Callable[[torch.Tensor], Any], said: str
) -> None:
    compiled, right = _adder(lower_text, 2, 4), torch.ones(2, 4)
    for use in (compiled, lambda *tensors: compiled.bind(tensors)):
        with pytest.raises(ModelRunError, match=said):
            use(right, wrong(right))


def test_another_number_of_tensors_is_refused_with_what_there_should_be(lower_text: Lower) -> None:
    compiled, x = _adder(lower_text, 2), torch.ones(2)
    with pytest.raises(ModelRunError, match=r"got 1 arguments, .* has 2 \(x0: 2xf32, x1: 2xf32\)"):
        compiled(x)
    with pytest.raises(ModelRunError, match=r"got 2 results, and the compiled model has 1 \(y0: 2xf32\)"):
        compiled.bind([x, x], [x, x])


def test_a_result_shares_memory_with_nothing_and_arguments_may_share(lower_text: Lower) -> None:
    compiled, memory = _adder(lower_text, 16), torch.ones(64)
    first, second = memory[:16], memory[16:32]
    with pytest.raises(ModelRunError, match="result 'y0' shares memory with 'x1'"):
        compiled.bind([first, second], [second])
    assert compiled.bind([first, first], [second]).run().eq(2).all()
    with pytest.raises(ModelRunError, match="requires grad"):
        compiled.bind([first, first], [torch.ones(16, requires_grad=True)])


def test_two_results_in_one_place_are_refused(lower_text: Lower) -> None:
    text = """
    func.func @main(%x: memref<32xf32>, %y: memref<32xf32>, %z: memref<32xf32>)
        attributes {llvm.emit_c_interface} {
      linalg.copy ins(%x : memref<32xf32>) outs(%y : memref<32xf32>)
      linalg.copy ins(%x : memref<32xf32>) outs(%z : memref<32xf32>)
      return
    }"""
    type_ = _type(32)
    compiled = compile_lowered(lower_text(text, [type_], [type_, type_]))
    memory = torch.zeros(64)
    bound = compiled.bind([torch.ones(32)], [memory[:32], memory[32:]])
    assert torch.cat(bound.run()).eq(1).all()
    with pytest.raises(ModelRunError, match="result 'y0' shares memory with 'y1'"):
        compiled.bind([torch.ones(32)], [memory[:32], memory[16:48]])


def test_a_result_that_writes_an_argument_is_copied_to_it_by_a_call(lower_text: Lower) -> None:
    type_ = _type(4)
    text = _pointwise(type_, "%r = arith.addf %a0, %a0 : f32")
    compiled = compile_lowered(lower_text(text, [type_], [type_], writes=("x0",)))
    state = torch.nn.Parameter(torch.ones(4))
    assert compiled(state) == ()
    assert state.tolist() == [2.0] * 4


def test_an_argument_that_is_only_written_is_written_in_place_unless_it_shares_memory(
    lower_text: Lower,
) -> None:
    type_ = _type(4)
    text = """
    func.func @main(%x: memref<4xf32>, %out: memref<4xf32>, %y: memref<4xf32>)
        attributes {llvm.emit_c_interface} {
      linalg.add ins(%x, %x : memref<4xf32>, memref<4xf32>) outs(%y : memref<4xf32>)
      return
    }"""
    lowered = lower_text(text, [type_, type_], [type_], writes=("x1",), in_place=frozenset({1}))
    compiled = compile_lowered(lowered)
    x, out = torch.ones(4), torch.zeros(4)
    before = out._version
    with memory_is_allocated(0):
        assert compiled(x, out) == ()
    assert out.tolist() == [2.0] * 4
    assert out._version > before
    with memory_is_allocated(1):
        assert compiled(x, x) == ()
    assert x.tolist() == [2.0] * 4
    with torch.inference_mode():
        out = torch.zeros(4)
        compiled(x, out)
    assert out.tolist() == [4.0] * 4


@contextmanager
def memory_is_allocated(times: int) -> Iterator[None]:
    """Require that so many tensors are allocated inside."""
    with torch.profiler.profile(profile_memory=True) as profiled:
        yield
    made = [
        each for each in profiled.events() if each.name == "aten::empty" and each.self_cpu_memory_usage > 0
    ]
    assert len(made) == times, made


def test_threads_may_call_one_compiled_model_at_once(lower_text: Lower) -> None:
    """Each call in flight has pointers and workspaces of its own."""
    text = """
    func.func @main(%x: memref<4096xf32>, %y: memref<4096xf32>, %w: memref<4096xf32>)
        attributes {llvm.emit_c_interface} {
      linalg.add ins(%x, %x : memref<4096xf32>, memref<4096xf32>) outs(%w : memref<4096xf32>)
      linalg.add ins(%w, %x : memref<4096xf32>, memref<4096xf32>) outs(%y : memref<4096xf32>)
      return
    }"""
    type_ = _type(4096)
    compiled = compile_lowered(lower_text(text, [type_], [type_], workspaces=(type_,)))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.full((4096,), float(number))
        for _ in range(200):
            (out,) = compiled(x)
            if not out.eq(3.0 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert compiled.workspaces == (type_,)


CALLS_NOTHING = """
func.func private @no_such_function(f32) -> f32
func.func private @printMemrefF32(memref<*xf32>)
func.func @main(%x: memref<4xf32>, %y: memref<4xf32>) attributes {llvm.emit_c_interface} {
  %i = arith.constant 0 : index
  %a = memref.load %x[%i] : memref<4xf32>
  %b = func.call @no_such_function(%a) : (f32) -> f32
  memref.store %b, %y[%i] : memref<4xf32>
  return
}"""


def test_a_call_of_a_function_that_does_not_exist_is_an_error_that_names_it(lower_text: Lower) -> None:
    lowered = lower_text(CALLS_NOTHING, [_type(4)], [_type(4)])
    with pytest.raises(ModelCompileError) as caught:
        compile_lowered(lowered)
    assert "the code calls 'no_such_function', which" in str(caught.value)
    assert "printMemrefF32" not in str(caught.value)  # declared, and called by nobody


def test_what_only_the_linker_misses_is_an_error_with_its_words(
    lower_text: Lower, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Translation can bring in names that the module does not have."""
    monkeypatch.setattr(execution, "resolve", lambda external: {})
    with pytest.raises(ModelCompileError, match=r"could not be linked.*\n.*no_such_function"):
        compile_lowered(lower_text(CALLS_NOTHING, [_type(4)], [_type(4)]))
    assert capfd.readouterr().err == ""


def test_a_module_that_is_not_all_llvm_is_a_compile_error(lower_text: Lower) -> None:
    type_ = _type(4)
    lowered = lower_text(_pointwise(type_, "%r = arith.negf %a0 : f32"), [type_], [type_], pipeline="cse")
    with pytest.raises(ModelCompileError, match=r"no llvm.func 'main'"):
        compile_lowered(lowered)
    half = lower_text(
        """
        func.func private @rest()
        llvm.func @main() attributes {llvm.emit_c_interface} { llvm.return }
        llvm.func @_mlir_ciface_main() { llvm.return }
        """,
        [],
        [],
        pipeline="cse",
    )
    with pytest.raises(ModelCompileError, match=r"LLVM did not take the module: .*\n.*func.func"):
        compile_lowered(half)


@pytest.mark.parametrize(
    ("arguments", "workspaces"), [(2, ()), (0, ()), (1, (_type(4),))], ids=["more", "fewer", "a workspace"]
)
def test_a_main_that_takes_something_else_is_refused_before_it_can_be_called(
    lower_text: Lower, arguments: int, workspaces: tuple[TensorType, ...]
) -> None:
    """A wrong number of memrefs would be read as garbage addresses."""
    type_ = _type(4)
    text = _pointwise(type_, "%r = arith.negf %a0 : f32")
    with pytest.raises(ModelCompileError, match=r"main takes 10 machine arguments, and memrefs of .* make"):
        compile_lowered(lower_text(text, [type_] * arguments, [type_], workspaces=workspaces))


def test_code_may_rely_on_results_being_no_inputs_and_on_alignment(lower_text: Lower) -> None:
    compiled = _adder(lower_text, 4)
    signature = re.search(r"llvm.func @main\((.*?)\) attributes", compiled.llvm_module)
    assert signature is not None
    told = [each for each in signature[1].split("%") if "noalias" in each]
    assert [each.split(":")[0] for each in told] == ["arg1", "arg6", "arg11"]
    assert all("llvm.align = 64" in each for each in told)


def test_an_unknown_level_is_refused(lower_text: Lower) -> None:
    type_ = _type(4)
    lowered = lower_text(_pointwise(type_, "%r = arith.negf %a0 : f32"), [type_], [type_])
    with pytest.raises(UsageError, match="optimise=7: LLVM has the levels 0, 1, 2 and 3"):
        compile_lowered(lowered, optimise=7)
    assert compile_lowered(lowered, optimise=0)(torch.ones(4))[0].tolist() == [-1.0] * 4


def test_functions_of_the_maths_library_and_its_vectors_are_found(lower_text: Lower) -> None:
    if symbols._library("libmvec.so.1") is None:
        pytest.skip("this C library has no vector functions")
    text = """
    func.func private @_ZGVbN4v_expf(vector<4xf32>) -> vector<4xf32>
    func.func @main(%x: memref<4xf32>, %y: memref<4xf32>) attributes {llvm.emit_c_interface} {
      %i = arith.constant 0 : index
      %a = vector.load %x[%i] : memref<4xf32>, vector<4xf32>
      %b = func.call @_ZGVbN4v_expf(%a) : (vector<4xf32>) -> vector<4xf32>
      vector.store %b, %y[%i] : memref<4xf32>, vector<4xf32>
      return
    }"""
    x = torch.randn(4)
    (out,) = compile_lowered(lower_text(text, [_type(4)], [_type(4)]))(x)
    torch.testing.assert_close(out, x.exp())
    body = "%r = math.erf %a0 : f32"
    (out,) = compile_lowered(lower_text(_pointwise(_type(4), body), [_type(4)], [_type(4)]))(x)
    torch.testing.assert_close(out, x.erf())


def test_conversions_that_the_processor_lacks_are_linked(lower_text: Lower) -> None:
    text = """
    func.func @main(%x: memref<4xf64>, %y: memref<4xf16>) attributes {llvm.emit_c_interface} {
      %i = arith.constant 3 : index
      %a = memref.load %x[%i] : memref<4xf64>
      %b = arith.truncf %a : f64 to f16
      memref.store %b, %y[%i] : memref<4xf16>
      return
    }"""
    lowered = lower_text(text, [_type(4, element="f64")], [_type(4, element="f16")])
    (out,) = compile_lowered(lowered)(torch.full((4,), 1.5, dtype=torch.float64))
    assert out[3] == 1.5


# --- threads -----------------------------------------------------------------------------------------

COUNTS_THREADS = """
func.func private @omp_get_thread_num() -> i32
func.func @main(%x: memref<64xi32>, %y: memref<64xi32>) attributes {llvm.emit_c_interface} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %all = arith.constant 64 : index
  scf.parallel (%i) = (%zero) to (%all) step (%one) {
    %n = func.call @omp_get_thread_num() : () -> i32
    memref.store %n, %y[%i] : memref<64xi32>
    scf.reduce
  }
  return
}"""


def _counter(lower_text: Lower, threads: int) -> Any:
    type_ = _type(64, element="i32")
    return compile_lowered(lower_text(COUNTS_THREADS, [type_], [type_], threads=threads))


@needs_openmp
def test_each_compiled_model_runs_on_its_own_number_of_threads(lower_text: Lower) -> None:
    x = torch.zeros(64, dtype=torch.int32)
    counters = {threads: _counter(lower_text, threads) for threads in (1, 2, 3)}
    for threads in (3, 1, 2, 3):
        (seen,) = counters[threads](x)
        assert set(seen.tolist()) == set(range(threads))
        assert counters[threads].threads == threads


@needs_openmp
def test_the_runtime_is_not_the_one_that_torch_has() -> None:
    runtime = parallel.load_openmp()
    before = torch.get_num_threads()
    runtime.library.omp_set_num_threads(before + 1)
    assert runtime.max_threads == before + 1
    assert torch.get_num_threads() == before
    assert parallel.loaded_openmp() is runtime
    assert f"spin for {runtime.blocktime} ms" in str(runtime)


def test_parallel_code_without_a_runtime_says_what_to_install(
    lower_text: Lower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> Any:
        raise UnavailableError("parallel code needs an OpenMP runtime: none")

    monkeypatch.setattr(symbols, "load_openmp", nothing)
    with pytest.raises(UnavailableError, match="needs an OpenMP runtime"):
        _counter(lower_text, 2)


def _run(script: str, **environment: str) -> str:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("KMP_", "MALLOC_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**others, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_openmp
def test_idle_workers_wait_as_told_and_a_users_own_setting_stands() -> None:
    script = """
        import os
        from torchsched.parallel import load_openmp
        runtime = load_openmp()
        print(runtime.library.kmp_get_blocktime(), runtime.blocktime, os.environ.get("KMP_BLOCKTIME"))
    """
    told = str(parallel.BLOCKTIME_MS)
    assert _run(script).split() == [told, told, "None"]
    assert _run(script, KMP_BLOCKTIME="7").split() == ["7", "7", "7"]


@needs_openmp
def test_a_forked_child_may_go_on_calling(lower_text: Lower) -> None:
    compiled = _counter(lower_text, 2)
    bound = compiled.bind([torch.zeros(64, dtype=torch.int32)])
    bound()
    with pytest.warns(DeprecationWarning, match="fork") if sys.version_info >= (3, 12) else nullcontext():
        child = os.fork()
    if child == 0:
        bound.results[0].numpy()[:] = -1
        bound()
        os._exit(0 if set(bound.results[0].numpy().tolist()) == {0, 1} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- dumps -------------------------------------------------------------------------------------------


@pytest.mark.spec("L11")
def test_the_object_and_the_assembly_of_a_compiled_model_can_be_had(
    lower_text: Lower, tmp_path: Path
) -> None:
    type_ = _type(1024)
    lowered = lower_text(_pointwise(type_, "%r = math.tanh %a0 : f32"), [type_], [type_])
    compiled = compile_lowered(lowered)
    path = compiled.dump_object(tmp_path / "kernel.o")
    assert path.read_bytes()[:4] == b"\x7fELF"
    assert "llvm.intr.tanh" in compiled.llvm_module
    if not dumping.disassembler():
        pytest.skip(dumping.disassembler().detail)
    text = compiled.assembly()
    assert "<main>:" in text
    assert re.search(r"R_\w+\s+tanhf", text)  # the call names what it calls
    assert str(Path("/tmp")) not in text


@pytest.mark.spec("L11")
def test_an_object_that_cannot_be_written_is_said_with_the_reason(lower_text: Lower, tmp_path: Path) -> None:
    compiled = _adder(lower_text, 4)
    with pytest.raises(UsageError, match=r"cannot write the object file .*nowhere.*No such file"):
        compiled.dump_object(tmp_path / "nowhere" / "kernel.o")


@pytest.mark.spec("L11")
def test_without_a_disassembler_the_fix_is_said(
    lower_text: Lower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = _adder(lower_text, 4)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"objdump is not on the PATH .*install binutils"):
        compiled.assembly()
    program = tmp_path / "llvm-objdump"
    program.write_text("#!/bin/sh\necho cannot read >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(UnavailableError, match=r"llvm-objdump could not read the object file: cannot read"):
        compiled.assembly()
