from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.verify.structure import align, describe, detached_copy, leaves, rebuild

Point = namedtuple("Point", "x y")


def _faults(got, expected, **options):
    return [f"{fault.name} {fault.message}" for fault in align(got, expected, **options).faults]


def _names(value):
    return [leaf.name for leaf in leaves(value, "output")]


def test_outputs_are_named_by_where_they_are():
    value = {"y": (torch.zeros(1), [torch.zeros(1)]), 3: None}
    assert _names(value) == ["output['y'][0]", "output['y'][1][0]", "output[3]"]
    assert _names(torch.zeros(2)) == ["output"]


@pytest.mark.spec("T24")
def test_a_column_is_no_row_and_nothing_broadcasts():
    assert _faults(torch.zeros(4, 1), torch.zeros(4)) == ["output has shape (4, 1), expected (4,)"]
    assert _faults(torch.zeros(()), torch.zeros(4)) == ["output has shape (), expected (4,)"]


@pytest.mark.spec("T24")
def test_an_integer_is_no_float_though_the_values_agree():
    assert _faults(torch.zeros(2, dtype=torch.int32), torch.zeros(2)) == [
        "output has dtype int32, expected float32"
    ]
    assert _faults(torch.zeros(2, dtype=torch.float64), torch.zeros(2)) != []


@pytest.mark.spec("T24")
@pytest.mark.gpu
def test_the_device_must_agree():
    assert _faults(torch.zeros(2), torch.zeros(2, device="cuda")) == [
        "output has device cpu, expected cuda:0"
    ]


def test_a_tensor_on_the_meta_device_holds_no_answer():
    found = _faults(torch.zeros(2, device="meta"), torch.zeros(2))
    assert found == ["output is on the meta device, where tensors have no elements"]


@pytest.mark.spec("T24")
def test_counts_must_agree():
    one, two = (torch.zeros(1),), (torch.zeros(1), torch.zeros(1))
    assert _faults(one, two) == ["output has 1 output, expected 2"]
    assert _faults(two, one) == ["output has 2 outputs, expected 1"]


@pytest.mark.spec("T24")
@pytest.mark.parametrize(
    ("got", "expected", "message"),
    [
        (torch.zeros(1), (torch.zeros(1),), "output is a tensor, expected a tuple of 1"),
        ([torch.zeros(1)], (torch.zeros(1),), "output is a list of 1, expected a tuple of 1"),
        ((torch.zeros(1),), {"y": torch.zeros(1)}, "output is a tuple of 1, expected a dict of 1"),
        (0.5, torch.zeros(()), "output is a float, expected a tensor"),
        (object(), torch.zeros(()), "output is an object, expected a tensor"),
        ((torch.zeros(1), [0]), (torch.zeros(1), (0,)), "output[1] is a list of 1, expected a tuple of 1"),
    ],
)
def test_nesting_must_agree(got, expected, message):
    assert _faults(got, expected) == [message]


@pytest.mark.spec("T24")
def test_none_where_a_tensor_is_expected_is_named():
    assert _faults((torch.zeros(1), None), (torch.zeros(1), torch.zeros(1))) == [
        "output[1] is None, expected a tensor"
    ]
    assert _faults((torch.zeros(1), torch.zeros(1)), (torch.zeros(1), None)) == [
        "output[1] is a tensor, expected None"
    ]


@pytest.mark.spec("T24")
@pytest.mark.parametrize("nothing", [(), [], {}, None, (None, [])])
def test_no_outputs_at_all_is_a_fault(nothing):
    assert _faults(nothing, nothing) == ["output there is nothing to compare: the reference gives no output"]


def test_dicts_are_matched_by_key_whatever_their_order():
    y, z = torch.zeros(1), torch.ones(2)
    found = align({"z": z, "y": y}, OrderedDict(y=y, z=z))
    assert [(pair.name, pair.got) for pair in found.pairs] == [("output['y']", y), ("output['z']", z)]
    assert _faults({"y": y, "w": z}, {"y": y, "z": z}) == ["output lacks 'z'; also has 'w'"]


def test_named_tuples_are_tuples():
    x, y = torch.zeros(1), torch.ones(1)
    assert len(align(Point(x, y), (x, y)).pairs) == 2
    values, indices = torch.zeros(3), torch.tensor(0)
    assert not _faults(torch.max(values, 0), (values[0], indices))


def test_python_numbers_must_be_of_one_type():
    assert not _faults((1, 2.0, True), (1, 2.0, True))
    assert _faults(1, 1.0) == ["output is of type int, expected float"]
    assert _faults(True, 1) == ["output is of type bool, expected int"]


def test_what_is_no_output_in_the_reference_is_named():
    assert _faults("yes", "yes") == [
        "output the reference gives a str, which is no output; let it give tensors"
    ]


class _Lazy(torch.Tensor):
    computed = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.computed += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_tensor_subclass_that_computes_when_looked_at_is_refused_before_it_is_looked_at():
    lazy = torch.zeros(4).as_subclass(_Lazy)
    _Lazy.computed = 0
    (fault,) = align(lazy, torch.zeros(4)).faults
    assert "_Lazy, a tensor subclass that may compute" in fault.message
    assert _Lazy.computed == 0


class _LazyList(list):
    def __iter__(self):
        raise AssertionError("looked at")

    __getitem__ = __iter__  # type: ignore[assignment]


def test_a_container_that_computes_its_entries_is_read_past_its_overrides():
    assert len(align(_LazyList([torch.zeros(1)]), [torch.zeros(1)]).pairs) == 1
    assert _faults(_LazyList(), [torch.zeros(1)]) == ["output has 0 outputs, expected 1"]


def test_parameters_are_plain_tensors():
    assert not _faults(torch.nn.Parameter(torch.zeros(2)), torch.zeros(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.zeros(2, 2).to_sparse(), "has layout sparse_coo"),
        (lambda: torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.qint8), "is a quantised tensor"),
        (lambda: torch._efficientzerotensor((2, 2)), "has no memory behind it"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "is a nested tensor"),
    ],
    ids=["sparse", "quantised", "zero tensor", "nested"],
)
@pytest.mark.filterwarnings("ignore")  # torch warns that two of these are on their way out
def test_tensors_without_plain_memory_are_refused_on_either_side(make, message):
    unreal = make()
    assert message in _faults(unreal, torch.zeros(2, 2))[0]
    assert "the reference's " + message in _faults(torch.zeros(2, 2), unreal)[0]


@pytest.mark.spec("T19")
def test_only_the_first_outputs_are_aligned_where_so_many_are_asked_for():
    y, z = torch.zeros(1), torch.zeros(2)
    found = align((y, "workspace"), (y, z), first=1)
    assert [pair.name for pair in found.pairs] == ["output[0]"]
    assert found.beyond == ("output[1]",)
    assert not align((y,), (y, z), first=1).faults
    assert not align(y, y, first=1).faults
    assert not align({"z": z, "y": y}, {"y": y, "z": y}, first=1).faults


@pytest.mark.spec("T19")
def test_asking_for_more_outputs_than_there_are_is_a_fault():
    y = torch.zeros(1)
    too_few = "output the check is of the first 3 outputs, and the {} gives {}"
    assert _faults((y, y), (y, y), first=3) == [too_few.format("reference", 2)]
    assert _faults(y, y, first=3) == [too_few.format("reference", 1)]
    assert _faults((y, y), (y, y, y), first=3) == [too_few.format("implementation", 2)]
    assert _faults(y, (y, y, y), first=3) == ["output is a tensor, expected a tuple of 3"]
    assert _faults({"x": y}, {"y": y}, first=1) == ["output lacks 'y'"]


def test_the_structure_is_described_in_one_line():
    value = (torch.zeros(4, 8), None, {"y": torch.zeros(3, dtype=torch.int64)}, [1])
    assert describe(value) == "(float32[4, 8] cpu, None, {'y': int64[3] cpu}, [int])"
    assert describe((torch.zeros(()),)) == "(float32[] cpu,)"


TREES = st.recursive(
    st.sampled_from([None, 1, 2.5, True]) | st.integers(0, 3).map(lambda n: torch.zeros(n)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda pair: Point(*pair))
    ),
    max_leaves=8,
)


@given(TREES)
def test_any_structure_aligns_with_its_own_rebuilt_copy(tree):
    copy = rebuild(
        tree, lambda leaf: leaf.value.clone() if isinstance(leaf.value, torch.Tensor) else leaf.value
    )
    assert describe(copy) == describe(tree)
    assert type(copy) is type(tree)
    found = align(copy, tree)
    outputs = [leaf.path for leaf in leaves(tree, "output") if leaf.value is not None]
    assert [pair.path for pair in found.pairs] == outputs
    assert bool(found.faults) == (not outputs)


@given(TREES, st.data())
def test_changing_the_type_of_one_leaf_is_a_fault_that_names_it(tree, data):
    names = [leaf.name for leaf in leaves(tree, "output") if leaf.value is not None]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    changed = rebuild(tree, lambda leaf: "changed" if leaf.name == name else leaf.value)
    assert [fault.name for fault in align(changed, tree).faults] == [name]


@pytest.mark.spec("T17", "T26")
def test_a_result_that_shares_memory_with_the_inputs_is_copied_and_nothing_else():
    x, fresh = torch.arange(6.0), torch.zeros(2)
    result = (x[2:], {"again": x, "fresh": fresh}, None)
    kept = detached_copy(result, (x, [1]))
    x.zero_()
    assert kept[0].tolist() == [2, 3, 4, 5]
    assert kept[1]["again"].tolist() == [0, 1, 2, 3, 4, 5]
    assert kept[1]["fresh"] is fresh
    assert result[1]["again"] is x
