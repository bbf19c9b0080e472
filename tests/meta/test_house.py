"""The house as a whole: no circle inside a room, no name for two things, no path that is not there, no room too large.

A list of exceptions here only shrinks: an entry that is no longer needed fails its test.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

MOST_LINES = 38_300
"""Of ``src/kernelmark`` in all; what is larger is two things, or one thing twice."""

LARGEST = {
    "__main__": 10,
    "audit": 1_215,
    "calibration": 803,
    "cli": 2_010,
    "device": 1_700,
    "doctor": 690,
    "errors": 220,
    "files": 418,
    "harness": 2_530,
    "isolation": 1_680,
    "kernelbench": 3_380,
    "kernelfile": 3_310,
    "launches": 1_900,
    "lazy": 60,
    "manifest": 2_235,
    "models": 2_745,
    "probe": 70,
    "pytest_plugin": 405,
    "records": 1_263,
    "report": 1_710,  # suites take its page of two runs
    "roofline": 520,
    "stats": 505,  # and what became worse
    "text": 55,
    "timing": 4_100,
    "units": 96,
    "verify": 2_935,
}
"""Lines of Python in each room."""

CIRCLES = {
    (
        "torchsched.descriptors.file_steps",
        "torchsched.descriptors.loader",
        "torchsched.descriptors.lookup",
        "torchsched.descriptors.passes",
        "torchsched.descriptors.schedule",
    ),
}
"""Circles that are still to be broken."""

TWICE = frozenset({"Baseline", "Line", "Request", "State"})
"""Class names that still stand for two things of one layer."""

EXAMPLES = frozenset(
    {
        "benchmarks/bench_rows.py",
        "benchmarks/cases/rows.py",
        "manifest/rows.yaml",
        "manifest/scaling.yaml",
        "src/mylib/manifest/gemm.yaml",
    }
)
"""Files of the reader's own that a document writes as examples."""

LOST = frozenset({"studies/fit_functions.py"})
"""What is cited and is not there."""


def _modules(package: str) -> dict[str, Path]:
    return {_name_of(path): path for path in sorted((SOURCE / package).rglob("*.py"))}


def _name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports(tree: ast.AST, *, types: bool = False) -> Iterator[tuple[str, str]]:
    """Give each module that is imported, anywhere, and the name that is taken from it; ``""`` for the module alone."""
    for node in ast.iter_child_nodes(tree):
        if _is_for_types(node) and not types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        yield from _imports(node, types=types)


def _home(module: str, name: str, modules: dict[str, Path]) -> str:
    """Follow a name through the packages that hand it on, to the module that it comes from."""
    if f"{module}.{name}" in modules:
        return f"{module}.{name}"
    if modules.get(module, Path()).name == "__init__.py":
        for origin, handed_on in _imports(_tree(modules[module]), types=True):
            if handed_on == name and origin != module:
                return _home(origin, name, modules)
    return module


def _arrows(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Give what each module imports; a package's own ``__init__`` stands for nothing, since it only hands names on."""
    arrows: dict[str, set[str]] = {}
    for module, path in modules.items():
        if path.name != "__init__.py":
            homes = {_home(origin, name, modules) for origin, name in _imports(_tree(path))}
            arrows[module] = {
                each for each in homes if each in modules and modules[each].name != "__init__.py"
            }
    return arrows


def _circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Find the modules that reach themselves, circle by circle."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for each in arrows.get(ahead.pop(), set()) - seen:
                seen.add(each)
                ahead.append(each)
        return seen

    reach = {module: reached(module) for module in arrows}
    circles = {
        tuple(sorted(other for other in reach[module] if module in reach.get(other, set())))
        for module in arrows
        if module in reach[module]
    }
    return [list(circle) for circle in sorted(circles)]


def test_no_modules_import_each_other() -> None:
    packages = ("kernelmark", "torchsched", "tileops")
    found = {tuple(circle) for package in packages for circle in _circles(_arrows(_modules(package)))}
    assert found <= CIRCLES
    assert found == CIRCLES, "broken: take it off the list"


def test_a_circle_is_found_also_through_three_modules() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert _circles(arrows) == [["a", "b", "c"]]


# --- one name, one thing --------------------------------------------------------------------------


def _layers() -> dict[str, int]:
    """Give the layer of each room, as the import contract has it; the lowest is 0."""
    (contract,) = (each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "arrows")
    lines = reversed(contract["layers"])
    return {room.strip(" ()"): number for number, line in enumerate(lines) for room in line.split("|")}


def _classes() -> dict[tuple[int, str], set[str]]:
    """Give where each public class is made, by its layer and name."""
    layers = _layers()
    found: dict[tuple[int, str], set[str]] = defaultdict(set)
    for module, path in _modules("kernelmark").items():
        room = [*module.split("."), "(root)"][1]
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[layers.get(room, -1), node.name].add(module)
    return found


def test_no_class_name_stands_for_two_things_in_one_layer() -> None:
    twice = {name: sorted(places) for (_, name), places in _classes().items() if len(places) > 1}
    new = {name: places for name, places in twice.items() if name not in TWICE}
    assert not new, "one word per thing: rename one of each"
    assert not TWICE - set(twice), "no longer made twice: take it off the list"


# --- what is cited is there -----------------------------------------------------------------------

_ROOTS = [ROOT, SOURCE, SOURCE / "kernelmark", SOURCE / "torchsched", SOURCE / "tileops"]
_PATH = re.compile(r"(?<![\w./~$<>{-])((?:[\w.-]+/)+[\w.-]*\w)")
_FIRST = {
    each.name
    for folder in _ROOTS
    for each in folder.iterdir()
    if each.is_dir() and not each.name.startswith((".", "__"))
} - {"runs", "shared"}


def _texts() -> Iterator[tuple[str, int, str]]:
    """Give each line of a document, and each line of a docstring or comment of the source, with its place."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for row, line in enumerate(path.read_text().splitlines(), start=1):
            yield str(path.relative_to(ROOT)), row, line
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for node in ast.walk(_tree(path)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield from (
                    (place, node.lineno + n, line) for n, line in enumerate(node.value.value.splitlines())
                )
        for row, line in enumerate(path.read_text().splitlines(), start=1):
            if "# " in line:
                yield place, row, line.partition("# ")[2]


def _is_there(cited: str) -> bool:
    return any((root / cited).exists() for root in _ROOTS)


def test_every_path_that_a_document_a_docstring_or_a_comment_cites_exists() -> None:
    missing = {
        cited: f"{place}:{row}"
        for place, row, line in _texts()
        for cited in _PATH.findall(line)
        if cited.partition("/")[0] in _FIRST and re.search(r"\.(?:py|md|yaml|toml|c|json)$", cited)
        if not _is_there(cited)
    }
    assert not {cited: place for cited, place in missing.items() if cited not in EXAMPLES | LOST}
    assert set(missing) == EXAMPLES | LOST, "no longer cited, or there: take it off the list"


# --- how large a room is --------------------------------------------------------------------------


def _lines(room: str) -> int:
    path = SOURCE / "kernelmark" / room
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return sum(len(file.read_text().splitlines()) for file in files)


def test_no_room_is_larger_than_it_was_agreed() -> None:
    rooms = {each for each in _layers() if _lines_or_none(each)}
    assert rooms == set(LARGEST), "each room has its limit here"
    too_large = {room: _lines(room) for room in rooms if _lines(room) > LARGEST[room]}
    assert not too_large, "lines of Python; merge, delete a second way, or say in LARGEST why it has to grow"


def _lines_or_none(room: str) -> int:
    path = SOURCE / "kernelmark" / room
    return _lines(room) if path.is_dir() or path.with_suffix(".py").is_file() else 0


def test_the_house_is_no_larger_than_it_may_be() -> None:
    assert (
        sum(len(path.read_text().splitlines()) for path in (SOURCE / "kernelmark").rglob("*.py"))
        <= MOST_LINES
    )
