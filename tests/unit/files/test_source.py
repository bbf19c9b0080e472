from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kernelmark.errors import ManifestError, ScheduleError
from kernelmark.files import source


def _without_libyaml() -> ModuleType:
    """Load the module once more, as it is where PyYAML has no libyaml."""
    spec = importlib.util.spec_from_file_location("source_without_libyaml", source.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    fast = yaml.CSafeLoader
    sys.modules[spec.name] = module
    try:
        del yaml.CSafeLoader
        spec.loader.exec_module(module)
    finally:
        yaml.CSafeLoader = fast
        del sys.modules[spec.name]
    return module


@pytest.fixture(params=["libyaml", "pure Python"], scope="module")
def reader(request: pytest.FixtureRequest) -> Any:
    return source if request.param == "libyaml" else _without_libyaml()


def test_both_readers_of_yaml_are_tried(reader: Any) -> None:
    fast = issubclass(reader._Loader, yaml.CSafeLoader)
    assert fast == (reader is source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-3", -3),
        ("0", 0),
        ("true", True),
        ("yes", "yes"),
        ("on", "on"),
        ("NO", "NO"),
        ("n", "n"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("nan", "nan"),
        (".inf", ".inf"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
    ],
)
def test_a_plain_scalar_is_read_as_yaml_1_2_reads_it(reader: Any, text: str, value: object) -> None:
    if text == "!!float 5":
        with pytest.raises(ManifestError, match="is not written as !!float wants it"):
            reader.parse_source(f"x: {text}", "f.yaml")
        return
    found = reader.parse_source(f"x: {text}", "f.yaml").value["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("a:\n\tb: 1", "f.yaml:2", "a tab in the indentation"),
        ("a:\n  b: 1\n  b: 2", "f.yaml:3: a.b", "duplicate key 'b', first on line 2"),
        ("a: &x\n  - *x", "f.yaml:1: a.0", "an alias to the collection that it stands in"),
        ("a: *x", "f.yaml:1", "undefined alias"),
        ("a: 1\n---\nb: 2", "f.yaml:2", "another document"),
        ("a: 1\n5: 2", "f.yaml:2", "key 5 is an int in YAML; quote it: '5'"),
        ("true: 2", "f.yaml:1", "key true is a bool in YAML"),
        ("[1, 2]: 2", "f.yaml:1", "a list or mapping as a key"),
        ("a: !!python/name:os.system x", "f.yaml:1: a", "a manifest holds plain values only"),
        ("a: !!set {x}", "f.yaml:1: a", "a manifest holds plain values only"),
        ("a: !mine [1]", "f.yaml:1: a", "tag '!mine'"),
        ("a: !!int x", "f.yaml:1: a", "is not written as !!int wants it"),
        ("a: 1e999", "f.yaml:1: a", "too large for a float"),
        ("a: [1, 2", "f.yaml:1", "not YAML"),
        ("a: b: c", "f.yaml:1", "not YAML"),
        ("a: 'x", "f.yaml:1", "not YAML"),
        ("a: 1\nb: \x00", "f.yaml:2", "character '\\x00' may not stand in YAML"),
        ("", "f.yaml:1", "the file is empty"),
        ("# only a comment\n", "f.yaml:1", "the file is empty"),
        ("[" * 40 + "]" * 40, "f.yaml:1: 0.0.0.0.0.0.0.0", "nested more than 30 deep"),
    ],
)
def test_what_a_manifest_has_no_use_for_is_refused_where_it_stands(
    reader: Any, text: str, where: str, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        reader.parse_source(text, "f.yaml")
    assert message in str(caught.value)
    if "not YAML" not in message:  # the two readers of YAML see an unclosed quote on different lines
        assert str(caught.value).startswith(f"{where}: ")
    assert caught.value.line is not None


@pytest.mark.parametrize("text", ["[" * 2000, "- " * 2000, "a: {" * 2000, "? " * 2000])
def test_endless_nesting_is_an_error_and_no_crash(reader: Any, text: str) -> None:
    with pytest.raises(ManifestError):
        reader.parse_source(text, "f.yaml")


def test_an_alias_to_a_finished_value_is_that_value(reader: Any) -> None:
    assert reader.parse_source("a: &x [1, 2]\nb: *x", "f.yaml").value == {"a": [1, 2], "b": [1, 2]}


def test_aliases_of_aliases_do_not_multiply(reader: Any) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 25)]
    value = reader.parse_source("\n".join(lines), "f.yaml").value
    assert value["a24"][0] is value["a23"]


def test_a_place_is_the_line_of_the_key_and_the_dotted_name() -> None:
    read = source.parse_source("a:\n  b:\n    - 1\n    - c: 2\n", "f.yaml")
    assert str(read.place(("a", "b", 1, "c"))) == "f.yaml:4: a.b.1.c"
    assert str(read.place(("a", "missing"))) == "f.yaml:1: a.missing"
    assert str(read.place()) == "f.yaml:1"


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ManifestError, match=r"f\.yaml:2: byte 0xff is not UTF-8"):
        source.read_source(file)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert source.read_source(file).value == {"a": 1}


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").mkdir()
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        source.read_source(tmp_path / "f.yaml")


def test_an_error_is_of_the_class_of_its_file_and_calls_the_file_by_its_name() -> None:
    kind = source.FileKind("a schedule", "'pipeline'", ScheduleError)
    with pytest.raises(ScheduleError, match=r"f\.yaml:1: the file is empty; a schedule needs 'pipeline'"):
        source.parse_source("# nothing", "f.yaml", kind=kind)
    with pytest.raises(ScheduleError, match="a schedule holds plain values only"):
        source.parse_source("x: !!python/name:os.system", "f.yaml", kind=kind)
    read = source.parse_source("x: 1", "f.yaml", kind=kind)
    assert isinstance(read.error("no", "x"), ScheduleError)
    assert isinstance(read.place(("x",)).error("no"), ScheduleError)
