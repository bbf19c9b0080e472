"""docs/architecture.md says what the tree says: each room once, floor by floor, and names that are there."""

from __future__ import annotations

import ast
import re

from tests.meta.test_house import PROJECT, ROOT, SOURCE, _imports, _modules, _tree

PAGE = (ROOT / "docs" / "architecture.md").read_text()
_ROOM = re.compile(r"^\| *([a-z ]*?) *\| `(\w+)` \|", re.MULTILINE)
_NAME = re.compile(r"`((?:kernelmark|torchsched|tileops)(?:\.\w+)+)`")
_FLOW = re.compile(r"```mermaid\nflowchart(.*?)```", re.DOTALL)


def _floors() -> list[set[str]]:
    """Give the rooms that the page lists, a floor each time that its first column says something."""
    floors: list[set[str]] = []
    for floor, room in _ROOM.findall(PAGE):
        if floor:
            floors.append(set())
        floors[-1].add(room)
    return floors


def _layers() -> list[set[str]]:
    """Give the rooms that exist, layer by layer as the import contract has them, the highest first."""
    (contract,) = (each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "arrows")
    package = SOURCE / "kernelmark"
    named = [{room.strip(" ()") for room in line.split("|")} for line in contract["layers"]]
    there = {
        path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    return [rooms & there for rooms in named if rooms & there]


def test_every_room_stands_on_the_page_once() -> None:
    listed = [room for _, room in _ROOM.findall(PAGE)]
    assert sorted(listed) == sorted({*set().union(*_layers())} - {"__main__"}), (
        "a room came or went: mend the table of docs/architecture.md"
    )


def test_an_upper_floor_of_the_page_is_an_upper_layer_of_the_contract() -> None:
    layer_of = {room: number for number, rooms in enumerate(_layers()) for room in rooms}
    highest = [min(layer_of[room] for room in floor) for floor in _floors()]
    lowest = [max(layer_of[room] for room in floor) for floor in _floors()]
    assert all(above < below for above, below in zip(lowest, highest[1:], strict=False)), (
        "the floors of docs/architecture.md and the layers of pyproject.toml disagree"
    )


def test_every_arrow_of_the_picture_is_an_import_of_the_source() -> None:
    imports = {
        (module.split(".")[1], origin.split(".")[1])
        for module, path in _modules("kernelmark").items()
        for origin, _ in _imports(_tree(path), types=True)
        if module.startswith("kernelmark.") and origin.startswith("kernelmark.")
    }
    (flow,) = _FLOW.findall(PAGE)
    drawn = {
        (left.strip(), right.strip())
        for line in flow.splitlines()
        if "-->" in line
        for left in line.split("-->")[0].split("&")
        for right in line.split("-->")[1].split("&")
    }
    assert drawn
    assert not drawn - imports, "nobody imports so any more: mend the picture of docs/architecture.md"


def test_every_name_on_the_page_is_there() -> None:
    names = set(_NAME.findall(PAGE))
    assert len(names) > 20
    assert not sorted(name for name in names if not _is_there(name)), "mend docs/architecture.md"


def _is_there(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = SOURCE.joinpath(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            rest = parts[length:]
            return not rest or (len(rest) == 1 and rest[0] in _made_in(ast.parse(file.read_text())))
    return False


def _made_in(tree: ast.Module) -> set[str]:
    """Give the public names that a module makes or hands on."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
            if node.names[0].name == "*" and node.module:
                found |= _made_in(_tree(_modules("kernelmark")[node.module]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # one of __all__, where all of a module is handed on
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found
