"""Whatever is written in a manifest folder: calls with unique ids, or a ManifestError, and nothing else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmark.errors import ManifestError
from kernelmark.manifest import Manifest, TensorSpec, load_manifest

GEMM = yaml.safe_load((Path(__file__).parent / "gemm.yaml").read_text())
DTYPES = ["float16", "bfloat16", "float32", "int8", "float8_e4m3fn"]

names = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).map(lambda name: f"x_{name}")
labels = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,9}", fullmatch=True)


def _load(content: bytes) -> Manifest:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f.yaml").write_bytes(content)
        return load_manifest(folder)


@st.composite
def ops(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid op with everything the language has, in plain values."""
    dims = [f"D{i}" for i in range(draw(st.integers(1, 4)))]
    variables = {
        f"T{i}": draw(st.lists(st.sampled_from(DTYPES), min_size=1, unique=True))
        for i in range(draw(st.integers(0, 2)))
    }
    dtypes = st.sampled_from([*variables, "int64"])
    entries = st.one_of(
        st.sampled_from(dims), st.integers(0, 9), st.sampled_from(dims).map(lambda d: f"2*{d} // 2")
    )
    tensors = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    made = {name: {"dtype": draw(dtypes), "shape": draw(st.lists(entries, max_size=3))} for name in tensors}
    # Every variable and every dimension is used.
    first = made[tensors[0]]
    first["shape"] = [*first["shape"], *dims]
    cut = draw(st.integers(1, len(tensors) - 1))
    inputs, outputs = {n: made[n] for n in tensors[:cut]}, {n: made[n] for n in tensors[cut:]}
    for name in list(inputs)[1:]:
        inputs[name] = inputs[name] | {"optional": draw(st.booleans())}
    case = st.fixed_dictionaries({name: st.sampled_from(allowed) for name, allowed in variables.items()})
    row = st.fixed_dictionaries(
        {
            "source": st.just("a model"),
            "dims": st.fixed_dictionaries({name: st.integers(0, 10**6) for name in dims}),
            "dtypes": st.lists(case, min_size=1, max_size=3, unique_by=lambda c: tuple(sorted(c.items()))),
            "params": st.fixed_dictionaries({"p": st.booleans()}),
            "with": st.lists(
                st.sampled_from([n for n in inputs if inputs[n].get("optional")] or [None]), unique=True
            ),
        }
    )
    rows = []
    for label in draw(st.lists(labels, min_size=1, max_size=4, unique=True)):
        drawn = draw(row)
        rows.append({"label": label} | drawn | {"with": [name for name in drawn["with"] if name]})
    return {
        "summary": "drawn",
        "dtypes": variables,
        "inputs": inputs,
        "outputs": outputs,
        "params": {"p": {"type": "bool"}},
        "arguments": {name: name for name in [*variables, *dims, "p"]},
        "roofline": {
            "flops": f"2*{dims[0]}",
            "bytes": "*".join([*dims, *(f"sizeof({v})" for v in variables)]),
            "compute": "float32",
        },
        "workloads": rows,
    }


@given(st.dictionaries(names.map(lambda name: f"{name}Op"), ops(), min_size=1, max_size=3), st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_a_valid_manifest_gives_the_calls_that_were_written_with_unique_ids(
    written: dict[str, Any], flow: bool
) -> None:
    document = {"family": "drawn", "ops": written}
    text = json.dumps(document) if flow else yaml.safe_dump(document, sort_keys=False)
    calls = _load(text.encode()).calls()
    assert len({call.id for call in calls}) == len(calls)
    expected = [
        (name, row, case) for name, op in written.items() for row in op["workloads"] for case in row["dtypes"]
    ]
    assert len(calls) == len(expected)
    for call, (name, row, case) in zip(calls, expected, strict=True):
        op = written[name]
        assert call.id == "-".join([name, row["label"], *(case[variable] for variable in op["dtypes"])])
        assert (call.op, call.label, call.dims, call.dtypes) == (name, row["label"], row["dims"], case)
        assert call.params == row["params"]
        assert call.signature == tuple(op["inputs"])
        given_inputs = [n for n, t in op["inputs"].items() if not t.get("optional") or n in row["with"]]
        assert list(call.tensors) == given_inputs
        for kind, specs in (("inputs", call.tensors), ("outputs", call.outputs)):
            for tensor, spec in specs.items():
                assert spec == _spec_by_hand(op[kind][tensor], row["dims"], case)
        assert call.roofline().flops == 2 * row["dims"]["D0"]


def _spec_by_hand(declared: dict[str, Any], dims: dict[str, int], case: dict[str, str]) -> TensorSpec:
    sizes = tuple(
        dims[e[:2]] if isinstance(e, str) and e[0] == "D" else dims[e[2:4]] if isinstance(e, str) else e
        for e in declared["shape"]
    )
    return TensorSpec(sizes, case.get(declared["dtype"], declared["dtype"]))


def _calls_or_manifest_error(content: bytes) -> None:
    try:
        calls = _load(content).calls()
        for call in calls:
            call.roofline()
        assert len({call.id for call in calls}) == len(calls)
    except ManifestError as error:
        assert str(error)  # noqa: PT017 - either way out is right


@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_random_bytes_and_text_give_a_manifest_error_or_calls(content: bytes) -> None:
    _calls_or_manifest_error(content)


yaml_like = st.text(alphabet="ab0:-[]{},&*!?|>'\"# \n\t%@.~<e+_", max_size=120)


@given(yaml_like)
@settings(max_examples=100)
def test_text_of_yamls_own_signs_gives_a_manifest_error_or_calls(text: str) -> None:
    _calls_or_manifest_error(text.encode())


def _paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above] + [path for key, item in below for path in _paths(item, (*above, key))]


PATHS = _paths(GEMM)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["N", "T", "K//0", "N-99", "2**N**N", "float16", "a", "sizeof(T)"]),
)
junk = st.recursive(
    scalars,
    lambda part: st.one_of(
        st.lists(part, max_size=3), st.dictionaries(st.text(max_size=4), part, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(PATHS), junk)
@settings(max_examples=150)
def test_a_valid_manifest_with_anything_in_one_place_gives_a_manifest_error_or_calls(
    path: tuple[Any, ...], value: Any
) -> None:
    document = json.loads(json.dumps(GEMM))
    if path:
        node = document
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
    else:
        document = value
    _calls_or_manifest_error(
        yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")
    )


@given(st.data())
@settings(max_examples=100)
def test_a_valid_manifest_with_characters_changed_gives_a_manifest_error_or_calls(
    data: st.DataObject,
) -> None:
    text = yaml.safe_dump(GEMM, sort_keys=False)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from([*"\t :{}[]-&*!#'\"\0\n9xé", ""])) + text[at + 1 :]
    _calls_or_manifest_error(text.encode())


@pytest.mark.spec("T2")
def test_a_thousand_calls_have_a_thousand_ids(tmp_path: Path) -> None:
    template = GEMM["ops"]["BmmFwdOp"]
    for f in range(5):
        rows = [template["workloads"][1] | {"label": f"row-{i}"} for i in range(50)]
        written = {f"F{f}N{o}Op": template | {"workloads": rows} for o in range(4)}
        text = json.dumps({"family": f"f{f}", "ops": written})
        (tmp_path / f"f{f}.yaml").write_text(text)
    calls = load_manifest(tmp_path).calls()
    assert len({call.id for call in calls}) == len(calls) == 1000
