"""A profile file is read whole, or refused with file, line and field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import ProfileError
from kernelmark.roofline import Calibration, Figure, Profile, Rate
from kernelmark.roofline.profiles import dump_profile, parse_profile, read_profile

GOOD = """\
name: Example
kind: cuda
match:
  - Example A
  - Example B
bandwidth:
  bytes_per_s: 4.8e12
  source: page 1
flops:
  float32:
    flops_per_s: 67e+12
    source: page 2
"""


def test_a_good_file_is_read_whole() -> None:
    assert parse_profile(GOOD, "x.yaml") == Profile(
        name="Example",
        kind="cuda",
        match=("Example A", "Example B"),
        bandwidth=Figure(4.8e12, "page 1"),
        flops={Rate.FLOAT32: Figure(67e12, "page 2")},
        path="x.yaml",
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("4.8e12", "-1", r"x\.yaml:7: bandwidth\.bytes_per_s: .*greater than 0"),
        ("4.8e12", "0", r"x\.yaml:7: bandwidth\.bytes_per_s"),
        ("4.8e12", ".inf", r"x\.yaml:7: bandwidth\.bytes_per_s: expected a float, got text"),
        ("4.8e12", ".nan", r"x\.yaml:7: bandwidth\.bytes_per_s"),
        ("4.8e12", "true", r"x\.yaml:7: bandwidth\.bytes_per_s: expected a float, got a bool"),
        ("4.8e12", "fast", r"x\.yaml:7: bandwidth\.bytes_per_s: expected a float, got text 'fast'"),
        ("    source: page 2\n", "", r"x\.yaml:10: flops\.float32: required field 'source' is missing"),
        ("  source: page 1", "  source: ''", r"x\.yaml:8: bandwidth\.source"),
        ("  source: page 1", "  source: ' '", r"x\.yaml:8: bandwidth\.source"),
        ("kind: cuda", "kind: cuda\nspeed: 1", r"x\.yaml:3: speed: unknown field 'speed'"),
        ("float32:", "float31:", r"x\.yaml:10: flops\.float31: .*'float32'"),
        ("  - Example A\n  - Example B", "  []", r"x\.yaml:3: match: empty; give at least one"),
        ("  - Example B", "  - ''", r"x\.yaml:5: match\.1"),
        ("name: Example", "name: [", r"x\.yaml:\d+: not YAML"),
        ("kind: cuda", "kind: cuda\nkind: cpu", r"x\.yaml:3: kind: duplicate key 'kind', first on line 2"),
        (
            "    flops_per_s: 67e+12",
            "    flops_per_s: 1\n    flops_per_s: 2",
            r"x\.yaml:12: .*duplicate key",
        ),
        (GOOD, "", r"x\.yaml:1: the file"),
        (GOOD, "- 1\n", r"x\.yaml:1: expected a mapping, got a list"),
        (GOOD, "name: &a [*a]\n", r"x\.yaml"),
        (GOOD, "a: \x00", r"x\.yaml:1: .*may not stand in YAML"),
    ],
)
def test_a_bad_file_is_refused_with_file_line_and_field(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError, match=says):
        parse_profile(GOOD.replace(old, new), "x.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no_file\.yaml: cannot be read"):
        read_profile(tmp_path / "no_file.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ProfileError, match=r"binary\.yaml:1: byte 0xff is not UTF-8"):
        read_profile(tmp_path / "binary.yaml")


texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30)
figures = st.builds(Figure, st.floats(1, 1e18), texts)
profiles = st.builds(
    Profile,
    name=texts,
    kind=st.sampled_from(["cpu", "cuda"]),
    match=st.lists(texts, min_size=1, max_size=3).map(tuple),
    bandwidth=figures,
    flops=st.dictionaries(st.sampled_from(Rate), figures),
    calibration=st.one_of(
        st.none(),
        st.builds(
            Calibration,
            texts,
            st.dictionaries(texts, texts, max_size=3),
            st.dictionaries(texts, st.floats(min_value=0, allow_nan=False, allow_infinity=False), max_size=3),
        ),
    ),
)


@given(profiles)
def test_a_profile_that_is_written_is_read_back_the_same(profile: Profile) -> None:
    assert parse_profile(dump_profile(profile), "x.yaml") == replace(profile, path="x.yaml")
