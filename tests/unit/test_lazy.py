"""Packages whose public names load when first used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
LAZY = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in SOURCE.rglob("__init__.py")
    if "lazy(__name__)" in path.read_text(encoding="utf-8")
)


def _import(root: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from kernelmark.lazy import lazy\n"
        "if TYPE_CHECKING:\n"
        "    from shop.till import Till\n"
        '__all__ = ["Till"]\n'
        "__getattr__, __dir__ = lazy(__name__)\n"
    )
    (package / "till.py").write_text("print('opened')\nclass Till: ...\n")
    return tmp_path


def test_a_name_is_imported_when_it_is_first_used_and_once(shop: Path) -> None:
    told = _import(shop, "import shop; print('imported'); shop.Till; shop.Till; print('Till' in vars(shop))")
    assert told.split() == ["imported", "opened", "True"]


def test_an_unknown_name_is_answered_with_those_there_are(shop: Path) -> None:
    program = "import shop\ntry: shop.Tell\nexcept AttributeError as error: print(error)"
    assert _import(shop, program) == "module 'shop' has no attribute 'Tell'; it has Till\n"


def test_completion_offers_what_is_not_loaded_yet(shop: Path) -> None:
    told = _import(shop, "import shop; print({'Till', 'lazy', '__name__'} <= set(dir(shop)))")
    assert told.split() == ["True"]


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_of_a_lazy_package_is_there(package: str) -> None:
    module = import_module(package)
    assert list(module.__all__) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_a_package_that_pytest_loaded_to_rewrite_its_assertions_gives_its_names_too(shop: Path) -> None:
    (shop / "conftest.py").write_text("pytest_plugins = ['shop']\n")
    (shop / "test_shop.py").write_text(
        "import shop\ndef test_till():\n"
        "    assert type(shop.__loader__).__name__ == 'AssertionRewritingHook'\n    assert shop.Till\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(shop)],
        cwd=shop,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
