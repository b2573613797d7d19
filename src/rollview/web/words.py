"""Numbers, times and health in the words of the pages."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rollview.service.overview import ViewLine

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_LONGEST_CELL = 300


def duration(seconds: float | None) -> str:
    """A length of time in two digits or so: 0.4 s, 12 s, 3 min, 2.5 h, 4 d."""
    if seconds is None:
        return "—"
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.0f} d"


def ago(moment: float | None) -> str:
    """How long ago something was."""
    if not moment:
        return "never"
    passed = time.time() - moment
    return "now" if passed < 1 else f"{duration(passed)} ago"


def clock(moment: float | None) -> str:
    """A time for people: UTC, to the second; without the date if it is today's."""
    if not moment:
        return ""
    then, now = datetime.fromtimestamp(moment, UTC), datetime.now(UTC)
    return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M:%S}"


def iso(moment: float | None) -> str:
    """A time for machines."""
    if not moment:
        return ""
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def moment_of(text: str) -> float:
    """The time that a text in ISO means; 0 if it says nothing."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def number(value: int | None) -> str:
    """A whole number with thousands apart, by a space that does not break."""
    return "—" if value is None else f"{value:,}".replace(",", "\u202f")


def size(count: int) -> str:
    """Bytes."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def plural(count: int, word: str) -> str:
    """A number with its noun."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def signed(count: int) -> str:
    """How often a row came or went."""
    return f"+{number(count)}" if count > 0 else f"−{number(-count)}"


def health(view: ViewLine) -> str:
    """How a view is, in a sentence."""
    if view.halted is not None:
        return view.halted.reason
    if view.lag_seconds is None:
        return "not known"
    if view.state == "catching up":
        behind = plural(view.behind_csn, "transaction")
        return f"{behind} behind, the first that it does not show {duration(view.lag_seconds)} old"
    if view.schedule:
        return "as of its schedule" if view.lag_seconds else "up to date, rolled by schedule"
    if view.is_full:
        return "up to date; recomputed at each refresh"
    return "up to date"


def cell(value: Any) -> str:
    """One value of a row as text; control characters are shown, not obeyed."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes | bytearray):
        text = f"X'{bytes(value).hex()}'"
    elif isinstance(value, list | tuple | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    else:
        text = str(value)
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def heads(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """The names of columns, each with how its values are set."""
    found = []
    for place, name in enumerate(names):
        values = [row[place] for row in rows if row[place] is not None]
        found.append((name, "num" if values and all(kind(value) == "num" for value in values) else ""))
    return found


def kind(value: Any) -> str:
    """How a value is set: numbers to the right, NULL dimmed."""
    if value is None:
        return "null"
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "num"
    return "time" if isinstance(value, date | datetime) else ""
