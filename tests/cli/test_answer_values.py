"""Rows and reports on their way to a command, as values: what arrives is what was sent."""

from __future__ import annotations

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rollview.answer import local_socket
from rollview.answer.local_socket import receive, received_reply, send_reply
from rollview.answer.requests import Page, Reply, values_of
from rollview.answer.values import packed, unpacked
from rollview.cli.terminal import plain

DAY, MOMENT = date(1582, 10, 4), datetime(2026, 3, 29, 1, 30, 0, 123456)
PLACE = pa.struct([("town", pa.string()), ("at", pa.list_(pa.float64()))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [2**62, -1, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "double": (pa.float64(), [math.nan, -math.inf, -0.0]),
    "price": (pa.decimal128(38, 10), [Decimal("1E-10"), Decimal(10**27), None]),
    "word": (pa.string(), ["é\x07\n😀", "", None]),
    "bytes": (pa.binary(), [b"\x00\xff", b"", None]),
    "day": (pa.date32(), [DAY, date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None]),
    "local": (pa.timestamp("us"), [MOMENT, datetime(1969, 12, 31, 23, 59, 59), None]),
    "hour": (pa.time64("us"), [time(23, 59, 59, 999999), time(0), None]),
    "span": (pa.duration("us"), [timedelta(-1, 5, 7), timedelta(0), None]),
    "tags": (pa.list_(pa.string()), [["b", None], [], None]),
    "place": (PLACE, [{"town": "u", "at": [1.0, math.nan]}, {"town": None, "at": None}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None]),
}


def _sent(reply: Reply, as_values: bool = True) -> Reply:
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as sender:
        # Rows may be more than a socket holds.
        sent = sender.submit(send_reply, here, reply, as_values)
        found = received_reply(there, receive(there))
        sent.result()
        return found


@pytest.mark.parametrize("name", COLUMNS)
def test_values_of_every_type_arrive_as_they_were(name: str) -> None:
    kind, values = COLUMNS[name]
    page = Page(pa.table({name: pa.array(values, kind)}), 7)
    found = _sent(Reply({"csn": 3}, page))
    assert found.page is None
    assert found.facts == {"csn": 3}
    assert found.values is not None
    assert (found.values.columns, found.values.rows, found.values.total) == ((name,), 3, 7)
    # Instants compare equal whatever object says that they are of UTC.
    assert repr(found.values.values) == repr(values_of(page).values).replace(repr(_utc()), repr(UTC))


def _utc() -> Any:
    return pa.array([MOMENT], pa.timestamp("us", "UTC"))[0].as_py().tzinfo


def test_rows_without_columns_are_counted() -> None:
    page = Page(pa.table({"a": [1, 2]}).select([]), 2)
    assert _sent(Reply({}, page)).values == values_of(page)


def test_who_does_not_ask_for_values_gets_arrow() -> None:
    page = Page(pa.table({"a": [1, 2]}), 2)
    assert _sent(Reply({}, page), as_values=False) == Reply({}, page)


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"a": list(range(local_socket._FEW_ROWS + 1))}),
        pa.table({"a": ["x" * (local_socket._FEW_BYTES + 1)]}),
        pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
    ],
    ids=["many rows", "large rows", "a type without JSON"],
)
def test_what_does_not_fit_a_message_comes_as_arrow(rows: pa.Table) -> None:
    found = _sent(Reply({}, Page(rows, 1)))
    assert found.values is None
    assert found.page is not None
    assert found.page.rows.equals(rows)


@dataclass(frozen=True)
class _Part:
    name: str
    seconds: tuple[float, ...] = ()

    @property
    def first(self) -> float:
        if not self.seconds:
            raise ValueError("there is none")
        return self.seconds[0]


@dataclass(frozen=True)
class _Report:
    name: str
    parts: tuple[_Part, ...]
    how: dict[str, str] = field(default_factory=dict)
    of_number: dict[int, _Part | None] = field(default_factory=dict)


def test_a_record_says_the_same_on_the_other_side() -> None:
    """Also with keys that might be taken for marks, and with what its properties say."""
    report = _Report("r", (_Part("a", (0.5, math.inf)), _Part("b")), {"record": "x", "tuple": "y"}, {1: None})
    found = _sent(Reply(record=report)).record
    assert plain(found) == plain(report)
    assert (found.parts[0].first, found.how, found.of_number) == (0.5, report.how, {1: None})
    assert not hasattr(found.parts[1], "first")


def test_what_is_not_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="object has no JSON"):
        packed([object()])
    assert unpacked(packed({"a": [1, (2, "b")]})) == {"a": [1, (2, "b")]}


@pytest.mark.parametrize(
    "message",
    [
        {"facts": {}, "rows": 1, "total": 1, "columns": ["a"], "values": [[{"decimal": "x"}]]},
        {"facts": {}, "rows": 1, "total": 1, "columns": ["a"], "values": [[{"date": 5}]]},
        {"facts": {}, "rows": None, "record": {"record": [], "derived": {}}},
    ],
)
def test_a_message_that_is_no_reply_is_a_lost_connection(message: dict[str, Any]) -> None:
    here, there = socket.socketpair()
    with here, there, pytest.raises(ConnectionError, match="not a reply"):
        received_reply(there, message)
