"""Python's values as JSON and back, for what passes between two processes: nothing is lost on the way.

A record that arrives has the attributes of the one that was sent, properties included, but is of no class of
ours: making the classes takes longer than the answer. Needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

_PARTS = ("record", "derived")
_SCALARS = (bool, int, float, str, type(None))


class Record(SimpleNamespace):
    """What a dataclass of another process says; `as_dict` has its fields without the properties."""

    def __init__(self, own: Mapping[str, Any], derived: Mapping[str, Any]) -> None:
        super().__init__(**own, **derived)
        self._own = tuple(own)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._own}


def packed(value: Any) -> Any:
    """A value as JSON has it; ValueError if `unpacked` could not restore it."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [packed(each) for each in value]
    if isinstance(value, Mapping):
        return {"mapping": [[packed(key), packed(each)] for key, each in value.items()]}
    if kind is tuple:
        return {"tuple": [packed(each) for each in value]}
    if kind is datetime or kind is date or kind is time:
        return {kind.__name__: value.isoformat()}
    if kind is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if kind is Decimal:
        return {"decimal": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if is_dataclass(value):
        own = {each.name: packed(getattr(value, each.name)) for each in fields(value)}
        return {"record": own, "derived": _derived(value)}
    raise ValueError(f"{kind.__name__} has no JSON")


def _derived(record: Any) -> dict[str, Any]:
    """The public properties of a record, those that it has."""
    found = {}
    for name, each in vars(type(record)).items():
        if isinstance(each, property) and not name.startswith("_"):
            # Such as the median of nothing.
            with suppress(ValueError):
                found[name] = packed(getattr(record, name))
    return found


def unpacked(value: Any) -> Any:
    """The value that was packed."""
    if isinstance(value, list):
        return [unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "record" in value:
        return Record(*({name: unpacked(each) for name, each in value[part].items()} for part in _PARTS))
    kind = next(iter(value))
    return _READ[kind](value[kind])


_READ: dict[str, Callable[[Any], Any]] = {
    "mapping": lambda pairs: {unpacked(key): unpacked(each) for key, each in pairs},
    "tuple": lambda items: tuple(map(unpacked, items)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "bytes": bytes.fromhex,
}
