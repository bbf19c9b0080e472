"""The profile of a device is the user's own, then the measured one, then a shipped one; never two."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.errors import ProfileError
from kernelmark.records import DeviceRecord
from kernelmark.roofline import Figure, Profile, find_profile, load_profiles
from kernelmark.roofline.profiles import dump_profile, store_calibration, user_folders

H200 = DeviceRecord(kind="cuda", name="NVIDIA H200", index=0)
CPU = DeviceRecord(kind="cpu", name="Example CPU", threads=2, affinity=(0, 1))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the profiles of whoever runs the tests out of them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELMARK_PROFILES", raising=False)
    return tmp_path


def profile(name: str, *, kind: str = "cuda", match: str = "NVIDIA H200") -> Profile:
    return Profile(name, kind, (match,), Figure(1e12, "mine"))


def put(folder: Path, file: str, content: Profile) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(dump_profile(content))


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 SXM 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 PCIe 40 GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80 GB"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100", None),
    ],
)
@pytest.mark.spec("T37")
def test_a_device_gets_the_profile_of_its_exact_name_and_no_other(reported: str, found: str | None) -> None:
    got = find_profile(DeviceRecord(kind="cuda", name=reported))
    assert (got.name if got else None) == found


def test_a_profile_of_the_users_own_wins_over_the_shipped_one(home: Path) -> None:
    put(home / "config/kernelmark/profiles", "mine.yaml", profile("Mine"))
    got = find_profile(H200)
    assert got is not None
    assert got.name == "Mine"
    assert got.path.endswith("mine.yaml")


def test_folders_win_in_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / "config/kernelmark/profiles", "mine.yaml", profile("Mine"))
    put(home / "a", "x.yml", profile("A"))
    put(home / "b", "x.yaml", profile("B"))
    put(home / "extra", "x.yaml", profile("Extra"))
    monkeypatch.setenv(
        "KERNELMARK_PROFILES", os.pathsep.join([str(home / "none"), str(home / "a"), str(home / "b")])
    )
    assert [p.name for p in load_profiles([home / "extra"])][:4] == ["Extra", "A", "B", "Mine"]
    assert find_profile(H200, [home / "extra"]) == load_profiles([home / "extra"])[0]
    got = find_profile(H200)
    assert got is not None
    assert got.name == "A"


def test_two_profiles_of_one_folder_that_claim_a_device_are_an_error_naming_both(home: Path) -> None:
    put(home / "extra", "one.yaml", profile("One"))
    put(home / "extra", "two.yaml", profile("Two", match="NVIDIA H*"))
    with pytest.raises(ProfileError, match=r"one\.yaml and .*two\.yaml match the cuda device 'NVIDIA H200'"):
        find_profile(H200, [home / "extra"])


def test_a_broken_file_is_an_error_even_if_it_would_not_be_used(home: Path) -> None:
    (home / "extra").mkdir()
    (home / "extra/broken.yaml").write_text("name: x\n")
    with pytest.raises(ProfileError, match=r"broken\.yaml"):
        find_profile(H200, [home / "extra"])


def test_a_file_that_has_changed_is_read_again(home: Path) -> None:
    put(home / "extra", "x.yaml", profile("Before"))
    first = find_profile(H200, [home / "extra"])
    put(home / "extra", "x.yaml", profile("Afterwards"))
    second = find_profile(H200, [home / "extra"])
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("Before", "Afterwards")


def test_a_cpu_has_no_shipped_profile_and_none_is_guessed() -> None:
    assert find_profile(CPU) is None


def test_a_cpu_has_the_calibration_that_was_made_with_these_threads_and_this_affinity() -> None:
    store_calibration(profile("Measured", kind="cpu", match="Example CPU"), CPU)
    got = find_profile(CPU)
    assert got is not None
    assert got.name == "Measured"
    for other in ({"threads": 1}, {"affinity": (0,)}, {"name": "Other CPU"}):
        assert find_profile(CPU.model_copy(update=other)) is None


def test_a_users_own_profile_wins_over_the_calibration(home: Path) -> None:
    store_calibration(profile("Measured", kind="cpu", match="Example CPU"), CPU)
    put(home / "config/kernelmark/profiles", "mine.yaml", profile("Mine", kind="cpu", match="Example *"))
    got = find_profile(CPU)
    assert got is not None
    assert got.name == "Mine"


def test_a_calibration_that_cannot_be_read_says_to_calibrate_again() -> None:
    path = store_calibration(profile("Measured", kind="cpu"), CPU)
    path.write_text("nonsense")
    with pytest.raises(ProfileError, match="delete the file, or calibrate again"):
        find_profile(CPU)


def test_a_calibration_is_replaced_whole_and_leaves_nothing_beside_it(home: Path) -> None:
    first = profile("First", kind="cpu")
    path = store_calibration(first, CPU)
    assert store_calibration(replace(first, name="Second"), CPU) == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.parent == home / "cache/kernelmark/calibration"


def test_a_calibration_that_cannot_be_kept_says_what_to_do(home: Path) -> None:
    (home / "cache").write_text("a file where the folder should be")
    with pytest.raises(ProfileError, match="XDG_CACHE_HOME"):
        store_calibration(profile("Measured", kind="cpu"), CPU)


def test_a_relative_xdg_folder_is_ignored_as_the_specification_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("APPDATA", "/somewhere")
    assert all(folder.is_absolute() for folder in user_folders())


@pytest.mark.spec("T37")
def test_every_shipped_figure_has_a_source_that_says_what_and_from_when() -> None:
    shipped = load_profiles()
    assert len(shipped) == len({Path(one.path).name for one in shipped}) == 13
    for one in shipped:
        for figure in (one.bandwidth, *one.flops.values()):
            assert "20" in figure.source, one.path
            assert figure.source.startswith(one.name.split()[0]), one.path
            assert len(figure.source) > 30, one.path


def test_shipped_rates_rise_as_the_numbers_get_narrower() -> None:
    for one in load_profiles():
        rates = [
            figure.per_s
            for name in ("float32", "tf32", "bfloat16", "float8")
            if (figure := one.flops.get(name))
        ]
        assert rates == sorted(rates), one.path
        assert one.flops["float16"].per_s == one.flops["bfloat16"].per_s, one.path


def test_no_shipped_rate_is_one_with_sparsity() -> None:
    """Dense bfloat16 rates, in TFLOP/s, as the vendors' whitepapers give them."""
    dense = {
        "NVIDIA H200 SXM": 989,
        "NVIDIA H200 NVL": 835,
        "NVIDIA H100 SXM": 989,
        "NVIDIA H100 PCIe": 756,
        "NVIDIA H100 NVL": 835,
        "NVIDIA A100 SXM 80 GB": 312,
        "NVIDIA B200": 2250,
        "NVIDIA L4": 121,
        "NVIDIA GeForce RTX 4090": 165,
        "AMD Instinct MI300X": 1307,
    }
    shipped = {one.name: one for one in load_profiles()}
    for name, rate in dense.items():
        assert int(shipped[name].flops["bfloat16"].per_s / 1e12) == rate, name
