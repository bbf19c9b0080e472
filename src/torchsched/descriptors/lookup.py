"""Which file a pipeline's name means: ``schedules/$target[/$feature]/$pipeline/$dtype.yaml``.

In each root, the target's features first, then the target, then what serves every target. A user's roots come
before the shipped one. A part, which others include, is no schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmark.errors import ScheduleError
from kernelmark.text import suggestion
from torchsched.descriptors.loader import SHIPPED, load_schedule
from torchsched.descriptors.schedule import Schedule
from torchsched.descriptors.schema import read_descriptor
from torchsched.elements import Element
from torchsched.targets import Architecture, Feature, Target

__all__ = ["SHIPPED", "Listed", "find_path", "find_schedule", "list_schedules"]

_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class Listed:
    """One schedule that can be named."""

    pipeline: str
    element: Element | None
    """What it is for; ``None`` for one that serves every element type."""
    target: str | None
    feature: Feature | None
    path: Path
    root: Path
    description: str = ""
    problem: ScheduleError | None = None
    """Why it cannot be used."""

    @property
    def shipped(self) -> bool:
        """Whether it came with this package."""
        return self.root == SHIPPED

    @property
    def serves(self) -> str:
        """The target and feature that it is for, in words."""
        return "/".join(each for each in (self.target, self.feature) if each) or "every target"


def find_schedule(
    pipeline: str | Sequence[str],
    element: Element,
    target: Target,
    *,
    roots: Sequence[Path] = (),
    values: Mapping[str, object] | None = None,
) -> Schedule:
    """Look up and load a pipeline, or several that follow one another.

    Args:
        pipeline: Names, or paths of files: one that has a folder in it or ends in ``.yaml`` is a path.
        element: The element type to look up.
        target: What the schedule is for.
        roots: Folders of the user's, which come first.
        values: Parameters to set.

    Raises:
        ScheduleError: there is none, or it is malformed.
    """
    names = (pipeline,) if isinstance(pipeline, str) else tuple(pipeline)
    if not names:
        raise ScheduleError("no pipeline is named")
    paths = [_path(name, element, target, roots) for name in names]
    shown = " then ".join(f"{name}/{element}" if not _is_path(name) else name for name in names)
    return load_schedule(paths, target, values=values, name=shown)


def list_schedules(roots: Sequence[Path] = ()) -> tuple[Listed, ...]:
    """List every schedule that can be named, in the order in which roots are searched.

    Raises:
        ScheduleError: a root is no folder.
    """
    return tuple(listed for root in (*_checked(roots), SHIPPED) for listed in _listed(root))


def candidates(pipeline: str, element: Element, target: Target, roots: Sequence[Path] = ()) -> Iterator[Path]:
    """Give the paths that are tried, in order."""
    for root in (*roots, SHIPPED):
        folders = [*(root / target.name / feature for feature in target.preference), root / target.name, root]
        for folder in folders:
            yield folder / pipeline / f"{element}{_SUFFIX}"
            yield folder / f"{pipeline}{_SUFFIX}"


def find_path(pipeline: str, element: Element, target: Target, roots: Sequence[Path] = ()) -> Path | None:
    """Give the file that a pipeline's name means; ``None`` where there is none."""
    tried = candidates(pipeline, element, target, roots)
    return next((path for path in tried if path.is_file() and not _is_part(path)), None)


def _path(name: str, element: Element, target: Target, roots: Sequence[Path]) -> Path:
    if _is_path(name):
        path = Path(name)
        if not path.is_file():
            raise ScheduleError(
                f"there is no file {name}; --list-schedules shows the schedules that have a name"
            )
        return path
    found = find_path(name, element, target, _checked(roots))
    if found is None:
        raise ScheduleError(_none_found(name, element, target, roots))
    return found


def _none_found(name: str, element: Element, target: Target, roots: Sequence[Path]) -> str:
    usable = [
        each
        for each in list_schedules(roots)
        if each.target in (None, target.name) and (each.feature is None or each.feature in target.features)
    ]
    elements = sorted({str(each.element) for each in usable if each.pipeline == name})
    if elements:
        hint = f"it has schedules for {', '.join(elements)}"
    else:
        hint = suggestion(name, sorted({each.pipeline for each in usable}), there_are="pipelines")
    places = "".join(f"\n  {path}" for path in candidates(name, element, target, roots))
    return f"no schedule {name!r} for {element} on {target.name}; {hint}. Looked for:{places}"


def _listed(root: Path) -> Iterator[Listed]:
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        *folders, _ = path.relative_to(root).parts
        target = folders.pop(0) if folders and folders[0] in _TARGETS else None
        feature = Feature(folders.pop(0)) if target and folders and folders[0] in _FEATURES else None
        element = Element(path.stem) if len(folders) == 1 and path.stem in _ELEMENTS else None
        if len(folders) > 1 or (folders and element is None):
            continue  # beside a pipeline's schedules there may stand what they include
        name = folders[0] if folders else path.stem
        listed = Listed(name, element, target, feature, path, root)
        try:
            model = read_descriptor(path)[1]
        except ScheduleError as error:
            yield replace(listed, problem=error)
            continue
        if not model.part:
            yield replace(listed, description=model.description or "")


def _is_part(path: Path) -> bool:
    try:
        return read_descriptor(path)[1].part
    except ScheduleError:
        return False  # what is wrong with it is said when it is loaded


def _checked(roots: Sequence[Path]) -> Sequence[Path]:
    for root in roots:
        if not root.is_dir():
            raise ScheduleError(f"the root of schedules {root} is no folder")
    return roots


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(_SUFFIX)


_TARGETS, _FEATURES, _ELEMENTS = frozenset(Architecture), frozenset(Feature), frozenset(Element)
