"""House rules that no linter knows, checked on the syntax tree of everything in src.

A line may be let off with ``# house: reason``; the reason must be there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
MOST_LINES = 450
NAMELESS = {"utils", "util", "common", "helpers", "misc"}
BROAD = {"Exception", "BaseException"}
EXITS = {"sys.exit", "os._exit", "exit", "quit", "SystemExit"}


@dataclass(frozen=True)
class Module:
    """One source file; ``place`` is its path below src, such as ``kernelmark/cli/main.py``."""

    place: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.place))

    def within(self, *packages: str) -> bool:
        return len(self.place.parts) > 2 and self.place.parts[1] in packages

    def comment(self, row: int) -> str:
        return "".join(self.text.splitlines()[row - 1 : row]).partition("#")[2]


Finding = tuple[int, str]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                below = f"{origin}.{alias.name}"
                yield node.lineno, below if _is_module(below) else origin


def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.joinpath("__init__.py").is_file()


def only_the_command_line_exits(module: Module) -> Iterator[Finding]:
    if module.within("cli"):
        return
    for node in ast.walk(module.tree):
        ends = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
        if ends is not None and _dotted(ends) in EXITS:
            yield node.lineno, f"{_dotted(ends)}: only kernelmark/cli ends the process"


def only_the_plugin_imports_pytest(module: Module) -> Iterator[Finding]:
    for row, name in _imports(module):
        if name.partition(".")[0] in {"pytest", "_pytest"} and not module.within("pytest_plugin"):
            yield row, f"import of {name}: only kernelmark/pytest_plugin talks to pytest"


def a_broad_except_says_why(module: Module) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type] if node.type else []
        if caught and not any(_dotted(one) in BROAD for one in caught):
            continue
        reason = module.comment(node.lineno).partition(" - ")[2] or module.comment(node.lineno)
        if reason.strip().startswith("noqa") or len(reason.split()) < 3:
            yield node.lineno, "a broad except needs a comment on its line that says why"


def the_package_root_is_not_imported_from_inside(module: Module) -> Iterator[Finding]:
    for row, name in _imports(module):
        if name == module.place.parts[0] or name.startswith("."):
            yield row, f"import of {name or 'the root'}: write kernelmark.x.y"


def a_module_is_named_after_its_subject(module: Module) -> Iterator[Finding]:
    if module.place.stem in NAMELESS:
        yield 1, f"{module.place.name} names no subject"


def a_module_can_be_read_in_one_sitting(module: Module) -> Iterator[Finding]:
    rows = len(module.text.splitlines())
    if rows > MOST_LINES:
        yield 1, f"{rows} lines, more than {MOST_LINES}: split it"


_MADE_OF_ERRORS = {"str", "repr", "message_of", "in_short", "describe"}
_LOOKS = {
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "count",
    "removeprefix",
    "removesuffix",
    "replace",
}
_CUTS = {"split", "rsplit", "partition", "rpartition"}
_LINE_ENDS = (repr("\n"), "chr(10)")
_MATCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}


class _Words:
    """What inside one function is an error, and what is the text of an error or of a note."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        self.errors = {each.arg for each in arguments if _is_error_type(each.annotation)}
        self.errors |= {
            each.name for each in ast.walk(function) if isinstance(each, ast.ExceptHandler) and each.name
        }
        self.texts: set[str] = set()
        known = -1
        while known < len(self.texts):  # a text may be handed on by names in any order
            known = len(self.texts)
            for node in ast.walk(function):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    self.texts |= {
                        t.id for t in targets if isinstance(t, ast.Name) and self.is_text(node.value)
                    }
                elif isinstance(node, ast.For | ast.comprehension) and self.is_text(node.iter):
                    self.texts |= {t.id for t in ast.walk(node.target) if isinstance(t, ast.Name)}

    def is_error(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BoolOp):
            return any(map(self.is_error, node.values))
        if isinstance(node, ast.Attribute):
            return node.attr in ("__cause__", "__context__") or node.attr.endswith("error")
        return isinstance(node, ast.Name) and node.id in self.errors

    def is_text(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self.texts
            case ast.Attribute(owner, attribute):
                return attribute in ("note", "__notes__") or (
                    attribute in ("args", "message", "strerror", "msg") and self.is_error(owner)
                )
            case ast.Call(ast.Name("note_text")):
                return True
            case ast.Call(ast.Name("getattr"), [_, ast.Constant("__notes__"), *_]):
                return True
            case ast.Call(ast.Name(name), [first, *_]) if name in _MADE_OF_ERRORS:
                return self.is_error(first) or self.is_text(first)
            case ast.Call(ast.Attribute(owner)) | ast.Subscript(owner):
                return self.is_text(owner)
            case ast.JoinedStr(parts):
                return any(map(self.is_text, parts))
            case ast.FormattedValue(value):
                return self.is_error(value) or self.is_text(value)
            case ast.BinOp(left, _, right):
                return self.is_text(left) or self.is_text(right)
            case ast.BoolOp(_, values):
                return any(map(self.is_text, values))
            case ast.IfExp(_, body, other):
                return self.is_text(body) or self.is_text(other)
        return False

    def decides(self, node: ast.AST) -> bool:
        """Whether ``node`` looks into a text, rather than handing it on or cutting it to its first line."""
        match node:
            case ast.Compare(_, [ast.In() | ast.NotIn()], [right]):
                return self.is_text(right)
            case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]):
                sides = (left, right)
                return any(map(self.is_text, sides)) and any(
                    isinstance(side, ast.Constant) and side.value for side in sides
                )
            case ast.Call(ast.Attribute(owner, method), arguments):
                cut = method in _CUTS and bool(arguments) and ast.unparse(arguments[0]) not in _LINE_ENDS
                return ((method in _LOOKS or cut) and self.is_text(owner)) or (
                    method in _MATCHES and not self.is_text(owner) and any(map(self.is_text, arguments))
                )
        return False


def _is_error_type(annotation: ast.AST | None) -> bool:
    return annotation is not None and any(word in ast.unparse(annotation) for word in ("Error", "Exception"))


def nothing_is_decided_by_words(module: Module) -> Iterator[Finding]:
    if module.within("report") or "torchsched" in module.place.parts:
        return  # where text is made; and what has no errors of this package
    found: dict[int, str] = {}
    for function in ast.walk(module.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            words = _Words(function)
            for node in ast.walk(function):
                if words.decides(node):
                    found[node.lineno] = (
                        f"{ast.unparse(node)[:60]}: decided by the text of an error or a note; ask its class or kind"
                    )
    yield from sorted(found.items())


RULES: tuple[Callable[[Module], Iterator[Finding]], ...] = (
    only_the_command_line_exits,
    only_the_plugin_imports_pytest,
    a_broad_except_says_why,
    the_package_root_is_not_imported_from_inside,
    a_module_is_named_after_its_subject,
    a_module_can_be_read_in_one_sitting,
    nothing_is_decided_by_words,
)


def _broken(rule: Callable[[Module], Iterator[Finding]], module: Module) -> list[str]:
    return [
        f"{module.place}:{row}: {text}"
        for row, text in rule(module)
        if len(module.comment(row).partition("house:")[2].split()) < 3
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Callable[[Module], Iterator[Finding]]) -> None:
    modules = [Module(path.relative_to(SOURCE), path.read_text()) for path in sorted(SOURCE.rglob("*.py"))]
    assert not [line for module in modules for line in _broken(rule, module)]


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        (only_the_command_line_exits, "stats/x.py", "import sys\nsys.exit(1)"),
        (only_the_command_line_exits, "stats/x.py", "raise SystemExit(2)"),
        (only_the_command_line_exits, "stats/x.py", "raise SystemExit"),
        (only_the_plugin_imports_pytest, "harness/x.py", "def f():\n    from _pytest import config"),
        (a_broad_except_says_why, "verify/x.py", "try:\n    f()\nexcept Exception:\n    pass"),
        (
            a_broad_except_says_why,
            "verify/x.py",
            "try:\n    f()\nexcept (ValueError, Exception):  # noqa: BLE001\n    pass",
        ),
        (a_broad_except_says_why, "verify/x.py", "try:\n    f()\nexcept:  # why\n    pass"),
        (the_package_root_is_not_imported_from_inside, "device/x.py", "from kernelmark import Case"),
        (the_package_root_is_not_imported_from_inside, "device/x.py", "import kernelmark"),
        (the_package_root_is_not_imported_from_inside, "device/x.py", "from . import base"),
        (a_module_is_named_after_its_subject, "device/utils.py", ""),
        (a_module_can_be_read_in_one_sitting, "device/x.py", "x = 1\n" * (MOST_LINES + 1)),
        (only_the_command_line_exits, "stats/x.py", "raise SystemExit(2)  # house:"),
        *(
            (nothing_is_decided_by_words, "verify/x.py", f"def f(error: ValueError, row):\n    {line}")
            for line in (
                "return 'memory' in str(error)",
                "return f'{error}'.startswith('out of')",
                "return str(error).removeprefix('error: ')",
                "return str(error.__cause__ or error).replace('timed', 'checked')",
                "text = str(error).strip()\n    first = text.lower()\n    return 'x' in first",
                "return re.search('lower|import', str(error))",
                "return _STAGE.findall(str(error))",
                "return str(error).partition('. ')[0]",
                "return error.args[0] == 'no device'",
                "return row.note not in row.other.note",
                "return note_text(row.note).startswith('not timed')",
                "return [n for n in error.__notes__ if n.startswith('while')]",
                "return any('MHz' in n for n in getattr(error, '__notes__', ()))",
                "said = message_of(error)\n    return said if said.startswith('at') else row",
            )
        ),
        (
            nothing_is_decided_by_words,
            "verify/x.py",
            "def f():\n    try:\n        g()\n    except OSError as broken:\n        return 'space' in str(broken)",
        ),
    ],
)
def test_a_breach_is_found(rule: Callable[[Module], Iterator[Finding]], place: str, text: str) -> None:
    assert _broken(rule, Module(Path("kernelmark", place), text))


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        (only_the_command_line_exits, "cli/x.py", "import sys\nsys.exit(1)"),
        (
            only_the_command_line_exits,
            "kernelfile/x.py",
            "raise SystemExit(2)  # house: the child process ends here",
        ),
        (only_the_plugin_imports_pytest, "pytest_plugin/x.py", "import pytest"),
        (
            a_broad_except_says_why,
            "x.py",
            "try:\n    f()\nexcept Exception:  # noqa: BLE001 - becomes a failed row\n    pass",
        ),
        (a_broad_except_says_why, "x.py", "try:\n    f()\nexcept ValueError:\n    pass"),
        (
            the_package_root_is_not_imported_from_inside,
            "device/x.py",
            "from kernelmark.device.base import Device",
        ),
        (the_package_root_is_not_imported_from_inside, "device/x.py", "from kernelmark import probe"),
        *(
            (
                nothing_is_decided_by_words,
                "verify/x.py",
                f"def f(error: ValueError, row, text: str):\n    {line}",
            )
            for line in (
                "return str(error)",
                "return str(error).strip().partition('\\n')[0]",
                "return isinstance(error, OSError) and error.errno == 28",
                "return row.note.kind is NoteKind.TEXT",
                "return Note.of(NoteKind.NO_TAILS, samples=1, needed=2) in row.notes",
                "return text.startswith('x') or 'y' in text",
                "return 'x' in str(error)  # house: torch has no class for it",
            )
        ),
        (nothing_is_decided_by_words, "report/x.py", "def f(row):\n    return 'x' in note_text(row.note)"),
    ],
)
def test_what_the_rule_allows_passes(
    rule: Callable[[Module], Iterator[Finding]], place: str, text: str
) -> None:
    assert not _broken(rule, Module(Path("kernelmark", place), text))


def test_the_linter_finds_nothing_in_the_source_docstrings_and_prints_among_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", str(SOURCE)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
