"""Numbers, values of rows and the health of views, as the pages write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rollview.observe.state import ViewState
from rollview.observe.times import duration

_LONGEST_CELL = 300


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
    """A count with its sign: rows added or removed."""
    return f"+{number(count)}" if count > 0 else f"−{number(-count)}"


def health(view: ViewState) -> str:
    """The health of a view, in a sentence."""
    if view.halted is not None:
        return view.halted.reason
    if view.lag_seconds is None:
        return "not known"
    if view.state.startswith("waiting"):
        return "a part of a global transaction has not arrived; `rollview status` names it"
    if view.state == "catching up":
        behind = plural(view.behind_csn, "transaction")
        return f"{behind} behind, the first that it does not show {duration(view.lag_seconds)} old"
    if view.schedule:
        return "as of its schedule" if view.lag_seconds else "up to date, rolled by schedule"
    if view.max_staleness_seconds and view.lag_seconds:
        return f"waits for more transactions, {duration(view.max_staleness_seconds)} at most"
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
