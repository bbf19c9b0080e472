"""The package names its parts without importing torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kernelmark.device as package


def test_naming_the_parts_imports_no_torch() -> None:
    code = "import sys, kernelmark.device as d; dir(d); d.FakeDevice(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", package.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(package, name).__name__ == name
    assert name in dir(package)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018
