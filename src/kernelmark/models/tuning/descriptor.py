"""Writes what a search found as a descriptor: it includes the schedule, and gives its parameters their values.

Where the values come from stands in it too. Knows nothing of how they were found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kernelmark.errors import RecordError
from kernelmark.report import write_report
from torchsched.descriptors import SHIPPED, Schedule, Value, load_schedule
from torchsched.descriptors.schema import SHIPPED_PREFIX

__all__ = ["descriptor_text", "write_descriptor"]

_ENDLESS = 10**6
"""Columns: each field stands on one line."""

_HEAD = """\
# Written by a search over the parameters of {name}; see 'provenance' below.
# kernelmark model MODEL.py --pipeline {file} takes it.
"""


def write_descriptor(
    path: Path, schedule: Schedule, values: Mapping[str, Value], provenance: Mapping[str, Any]
) -> Path:
    """Write the descriptor, and read it once, so that what cannot be read back is told here.

    Args:
        path: The file.
        schedule: What was searched, with the values that were the default of the search.
        values: The values found.
        provenance: How, in plain values.

    Raises:
        RecordError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot make the folder {path.parent}: {error.strerror}; give another --write"
        ) from error
    write_report(path, descriptor_text(path, schedule, values, provenance))
    load_schedule(path, schedule.target)
    return path


def descriptor_text(
    path: Path, schedule: Schedule, values: Mapping[str, Value], provenance: Mapping[str, Any]
) -> str:
    """Give the text of the descriptor that stands at ``path``."""
    wanted = {**schedule.values, **values}
    head = _HEAD.format(name=schedule.name, file=path.name)
    lines = [
        _dumped({"description": f"{schedule.name} with parameters found by a search"}),
        "parameters:\n",
        *(f"  {name}: {_flow(each)}" for name, each in _parameters(schedule, wanted).items()),
        "pipeline:\n",
        *(f"  - {_dumped({'include': _include(each, path.parent)})}" for each in schedule.paths),
        "provenance:\n",
        *(f"  {_entry(name, each)}" for name, each in provenance.items()),
    ]
    return head + "".join(lines)


def _parameters(schedule: Schedule, values: Mapping[str, Value]) -> dict[str, Any]:
    """Declare each parameter anew, with its choices: what is tuned can be tuned again, and changed by hand."""
    declared = {}
    for parameter in schedule.parameters:
        value = _plain(values[parameter.name])
        choices = [_plain(each) for each in parameter.choices]
        if choices and value not in choices:
            choices.append(value)
        declared[parameter.name] = {"default": value, **({"choices": choices} if choices else {})}
    return declared


def _include(path: Path, folder: Path) -> str:
    """Name a file so that the descriptor finds it: a shipped one on any machine, another from where it stands."""
    path = path.resolve()
    if path.is_relative_to(SHIPPED):
        return f"{SHIPPED_PREFIX}{path.relative_to(SHIPPED).as_posix()}"
    return Path(os.path.relpath(path, folder.resolve())).as_posix()


def _plain(value: Value) -> Any:
    return (
        [_plain(each) for each in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )


def _entry(name: str, value: Any) -> str:
    return f"{name}: {_flow(value)}" if isinstance(value, dict) else _dumped({name: value})


def _flow(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_ENDLESS, default_flow_style=True)


def _dumped(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_ENDLESS)
