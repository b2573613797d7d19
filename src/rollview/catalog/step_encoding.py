"""Bounds of steps as JSON and back, in the version that this release writes and in all older ones.

Version 0 is what was written before versions were recorded. Bounds of an older version go through one upgrade
after the other, each a function from the JSON of a version to that of the next. Whatever cannot be read is
refused as a whole: a step that was misunderstood would be finished wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rollview.catalog.step_bounds import (
    KINDS,
    ApplyStep,
    CaptureStep,
    CondenseStep,
    DropStep,
    LoadStep,
    MaintainStep,
    PropagateStep,
    StepBounds,
)


@dataclass(frozen=True)
class Undecodable:
    """What is wrong with the bounds of a step; `is_newer` if a newer release wrote them."""

    reason: str
    is_newer: bool = False


def encode_bounds(bounds: StepBounds[Any]) -> str:
    """The JSON text of bounds: dataclasses become objects, named tuples become lists."""
    return json.dumps(bounds, default=_as_object)


def decode_bounds(kind: str, version: int, text: str) -> StepBounds[Any] | Undecodable:
    """The bounds that a text stands for, or why this release cannot tell."""
    if kind not in KINDS:
        return Undecodable(f"this rollview does not know steps of the kind {kind}", is_newer=True)
    wanted = KINDS[kind]
    if version > wanted.version:
        reason = f"its bounds have version {version}, and this rollview knows only up to {wanted.version}"
        return Undecodable(reason, is_newer=True)
    try:
        value = json.loads(text)
        for each in range(version, wanted.version):
            value = UPGRADES[wanted, each](value)
        bounds: StepBounds[Any] = _decode(wanted, value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Undecodable(f"its bounds cannot be decoded: {error!r}")
    return bounds


def _as_object(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass or a named tuple, in order, with their types."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    return {name: hints[name] for name in names}


def _decode(kind: Any, value: Any) -> Any:
    """A JSON value as a value of this type, exactly: nothing may be missing, and nothing left over."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _decode(arguments[0], value)
    if origin is tuple and type(value) is list:
        return tuple(_decode(arguments[0], each) for each in value)
    if origin is Mapping and type(value) is dict:
        return {name: _decode(arguments[1], each) for name, each in value.items()}
    if isinstance(kind, type) and is_dataclass(kind) and type(value) is dict:
        hints = _field_types(kind)
        if value.keys() == hints.keys():
            return kind(**{name: _decode(hint, value[name]) for name, hint in hints.items()})
    elif isinstance(kind, type) and issubclass(kind, tuple) and type(value) is list:
        hints = _field_types(kind)
        if len(value) == len(hints):
            return kind(*(_decode(hint, each) for hint, each in zip(hints.values(), value, strict=True)))
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{json.dumps(value)[:200]} is not a valid {getattr(kind, '__name__', kind)}")


def _name_source_txids(bounds: dict[str, Any]) -> dict[str, Any]:
    """A transaction's id at its source was called its mark."""
    for site in bounds["sites"].values():
        site["source_txids"] = site.pop("marks")
    return bounds


def _only_number(bounds: dict[str, Any]) -> dict[str, Any]:
    """The version is recorded from here on; the fields are the same."""
    return bounds


def _without_truncation(bounds: dict[str, Any]) -> dict[str, Any]:
    """No step of a view emptied it as a whole."""
    return bounds | {"emptied": 0}


def _without_recomputing(bounds: dict[str, Any]) -> dict[str, Any]:
    """No step of a view computed it as a whole."""
    return bounds | {"recomputed": 0, "reason": ""}


def _without_rolling(bounds: dict[str, Any]) -> dict[str, Any]:
    """No view was propagated by rolling."""
    return bounds | {"executed": 0}


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Mapping[tuple[type[StepBounds[Any]], int], Upgrade] = {
    (CaptureStep, 0): _name_source_txids,
    (PropagateStep, 0): _only_number,
    (PropagateStep, 1): _without_truncation,
    (PropagateStep, 2): _without_recomputing,
    (PropagateStep, 3): _without_rolling,
    (ApplyStep, 0): _only_number,
    (LoadStep, 0): _only_number,
    (DropStep, 0): _only_number,
    (CondenseStep, 0): _only_number,
    (MaintainStep, 0): _only_number,
}
"""For each kind and version before its present one, how the next version is made of it."""
