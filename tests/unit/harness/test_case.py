"""Cases: what they hold, when it is made, and when it goes."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref
from pathlib import Path

import numpy
import pytest
import torch

from kernelmark.errors import EntryError
from kernelmark.harness import Case, Session, cases, seed_of
from kernelmark.verify import Exact


class Noise:
    """A workload that draws from every generator there is."""

    def gen_inputs(self):
        return torch.randn(3), torch.tensor(random.random()), torch.tensor(numpy.random.rand())

    def reference(self, *inputs):
        return inputs[0]

    def verification(self):
        return Exact()


@pytest.mark.spec("T1")
def test_collecting_cases_makes_no_tensor_and_asks_for_no_device(toy: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, '.'); from toy_ops import ScaleOp; import kernelmark;"
        "found = kernelmark.cases(ScaleOp); import torch; torch.set_default_device('meta');"
        "from kernelmark.harness import ambient;"
        "assert not ambient._default.cache_info().currsize, 'a session was made'; assert not found[0]._made;"
        "assert not torch.cuda.is_initialized(); print(len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=toy, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "3", done.stderr


@pytest.mark.spec("T2")
def test_there_is_one_case_for_each_dtype_case_of_each_row_in_manifest_order(toy: Path) -> None:
    from toy_ops import ScaleOp

    ids = [case.id for case in cases(ScaleOp)]
    assert ids == ["ScaleOp-small-float32", "ScaleOp-small-float64", "ScaleOp-wide-float32"]
    assert ids == [case.id for case in cases(ScaleOp)]


@pytest.mark.spec("T5")
def test_a_case_tells_arguments_inputs_and_params(scale_case: Case) -> None:
    assert scale_case.arguments == {"factor": 2.0}
    assert [tuple(x.shape) for x in scale_case.inputs] == [(8, 16)]
    assert scale_case.params["x"] == "float32[8, 16]"
    assert scale_case.params["factor"] == 2.0


@pytest.mark.spec("T6")
def test_data_is_made_on_first_access_and_stays_the_same_objects_until_released(session: Session) -> None:
    case = Case("noise", Noise)
    first = case.inputs
    assert case.inputs is first
    assert case.reference is case.reference
    assert case.verification is case.verification
    watch = weakref.ref(first[0])
    kept = [x.clone() for x in first]
    case.release()
    del first
    gc.collect()
    assert watch() is None
    assert all(torch.equal(a, b) for a, b in zip(case.inputs, kept, strict=True))


@pytest.mark.spec("T6")
def test_inputs_depend_on_the_id_alone_and_leave_the_generators_as_they_were(session: Session) -> None:
    torch.manual_seed(1)
    a = Case("noise", Noise).inputs
    torch.manual_seed(2)
    random.seed(5)
    numpy.random.seed(6)
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    b = Case("noise", Noise).inputs
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), numpy.random.get_state()[1].tolist())
    assert not torch.equal(a[0], Case("other", Noise).inputs[0])
    assert seed_of("noise") != seed_of("other")


@pytest.mark.spec("T7", "T39")
def test_the_workload_is_the_object_that_made_the_inputs_and_serves_without_a_case(
    scale_case: Case, toy: Path
) -> None:
    from toy_cases.scale import ScaleWorkload

    assert isinstance(scale_case.workload, ScaleWorkload)
    alone = ScaleWorkload(scale_case.workload.call)
    (x,) = alone.gen_inputs()
    assert torch.equal(alone.reference(x), x * 2)


def test_an_entry_that_builds_no_workload_is_named(session: Session) -> None:
    with pytest.raises(EntryError, match=r"case odd: .*has no verification"):
        _ = Case("odd", object).inputs


@pytest.mark.spec("T4")
def test_inputs_of_an_entry_replace_those_of_the_workload(session: Session) -> None:
    case = Case("noise", Noise, inputs=lambda workload: [torch.zeros(2)])
    assert len(case.inputs) == 1
    assert torch.equal(case.inputs[0], torch.zeros(2))


def test_a_seed_that_is_given_replaces_the_one_from_the_id() -> None:
    assert Case("one", dict).seed == seed_of("one")
    assert Case("one", dict, seed=42).seed == 42


def _declared(scale_case: Case, inputs: object) -> Case:
    """The toy library's case, whose workload gives other inputs than the manifest declares."""
    return Case(
        scale_case.id, lambda: scale_case.workload, inputs=lambda _: inputs, declared=scale_case.workload.call
    )


@pytest.mark.spec("T5")
@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ((torch.zeros(8, 17),), r"gives x as float32\[8, 17\]; the manifest says float32\[8, 16\]"),
        ((torch.zeros(16, 8),), r"gives x as float32\[16, 8\]"),
        ((torch.zeros(8, 16).half(),), r"gives x as float16\[8, 16\]"),
        ((torch.zeros(8, 16), torch.zeros(1)), r"gives 2 inputs; the manifest says 1: x"),
        ((None,), r"gives x as None"),
        ((3.0,), r"gives x as float\[\]"),
    ],
)
def test_inputs_other_than_the_declared_ones_are_an_error_before_anything_is_checked(
    scale_case: Case, session: Session, inputs: tuple[object, ...], told: str
) -> None:
    with pytest.raises(EntryError, match=f"{scale_case.id}: .*{told}"):
        _declared(scale_case, inputs).require_declared_inputs()


@pytest.mark.spec("T5")
def test_an_answer_other_than_the_declared_one_is_an_error(scale_case: Case, session: Session) -> None:
    scale_case.require_declared_inputs()
    scale_case.require_declared_outputs(torch.zeros(8, 16))
    with pytest.raises(EntryError, match=r"gives y as float64\[8, 16\]; the manifest says float32"):
        scale_case.require_declared_outputs(torch.zeros(8, 16).double())
    with pytest.raises(EntryError, match="gives 2 outputs; the manifest says 1"):
        scale_case.require_declared_outputs((torch.zeros(8, 16), None))
    Case("free", Noise).require_declared_inputs()
