"""Profile files: YAML in, :class:`Profile` out, and back; errors name the file, the line and the field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kernelmark.errors import ProfileError
from kernelmark.roofline.model import Calibration, Figure, Profile, Rate

__all__ = ["dump_profile", "parse_profile", "read_profile"]


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a rate is a number")  # noqa: TRY004 - pydantic turns ValueError into a field's error
    return value


# PyYAML reads 4.8e12 as text, since YAML 1.1 wants 4.8e+12; both are taken.
_PerSecond = Annotated[float, BeforeValidator(_no_bool), Field(gt=0, allow_inf_nan=False)]
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Bandwidth(_Model):
    bytes_per_s: _PerSecond
    source: _Text


class _Flops(_Model):
    flops_per_s: _PerSecond
    source: _Text


class _Calibration(_Model):
    date: _Text
    conditions: dict[str, str] = Field(default_factory=dict)
    measured: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)


class _Profile(_Model):
    name: _Text
    kind: _Text
    match: Annotated[list[_Text], Field(min_length=1)]
    bandwidth: _Bandwidth
    flops: dict[Rate, _Flops]
    calibration: _Calibration | None = None


def read_profile(path: Path) -> Profile:
    """Read one file.

    Raises:
        ProfileError: it cannot be read, or lacks what a profile must hold.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from error
    return parse_profile(text, str(path))


def parse_profile(text: str, path: str) -> Profile:
    """Parse the text of one file.

    Raises:
        ProfileError: it is not YAML, or lacks what a profile must hold.
    """
    root, value = _compose(text, path)
    try:
        model = _Profile.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        loc = [part for part in first["loc"] if part != "[key]"]
        where = ".".join(str(part) for part in loc) or "the file"
        raise ProfileError(f"{path}:{_line(root, loc)}: {where}: {first['msg']}") from error
    return Profile(
        name=model.name,
        kind=model.kind,
        match=tuple(model.match),
        bandwidth=Figure(model.bandwidth.bytes_per_s, model.bandwidth.source),
        flops={rate: Figure(figure.flops_per_s, figure.source) for rate, figure in model.flops.items()},
        calibration=Calibration(
            model.calibration.date, model.calibration.conditions, model.calibration.measured
        )
        if model.calibration
        else None,
        path=path,
    )


def dump_profile(profile: Profile) -> str:
    """Write a profile as the text of a file that :func:`parse_profile` reads back."""
    fields: dict[str, Any] = {
        "name": profile.name,
        "kind": profile.kind,
        "match": list(profile.match),
        "bandwidth": {"bytes_per_s": profile.bandwidth.per_s, "source": profile.bandwidth.source},
        "flops": {
            rate.value: {"flops_per_s": figure.per_s, "source": figure.source}
            for rate, figure in profile.flops.items()
        },
    }
    if profile.calibration is not None:
        calibration = profile.calibration
        fields["calibration"] = {"date": calibration.date, "conditions": dict(calibration.conditions)}
        if calibration.measured:
            fields["calibration"]["measured"] = dict(calibration.measured)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)


def _compose(text: str, path: str) -> tuple[yaml.Node | None, Any]:
    """Give the nodes, which know their lines, and the plain value."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_duplicates(root, path)
        return root, yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ProfileError(f"{path}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise ProfileError(f"{path}: an alias to what it stands in, or nesting without end") from error


def _refuse_duplicates(node: yaml.Node | None, path: str) -> None:
    """PyYAML keeps the last of two equal keys and says nothing."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise ProfileError(f"{path}:{key.start_mark.line + 1}: {key.value!r} stands here twice")
            seen.add(key.value)
            _refuse_duplicates(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item, path)


def _line(node: yaml.Node | None, loc: Sequence[int | str]) -> int:
    """Give the line of the field at ``loc``, or of the nearest field above it."""
    line = 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == part]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            item: yaml.Node = node.value[part]
            line, node = item.start_mark.line + 1, item
    return line
