"""Points in time, as users write them: `csn:N`, an ISO time, `latest`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rollview.algebra.net_effect import condensed_around
from rollview.catalog import Catalog
from rollview.errors import PointError

_CSN = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Covered:
    """The csn from the oldest that can be read to the high-water mark."""

    oldest: int
    newest: int


def resolve(catalog: Catalog, text: str | int, latest: int) -> int:
    """The csn that a user means; a time means the last csn committed by then."""
    if isinstance(text, int):
        return text
    word = text.strip()
    if word.lower() == "latest":
        return latest
    prefix, _, number = word.partition(":")
    if prefix.lower() == "csn":
        if not _CSN.fullmatch(number.strip()):
            raise PointError(f"`{text}` is not a valid csn", subject=text, hint="for example csn:42")
        return int(number)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        hint = "csn:N, an ISO time such as 2026-01-31T12:00:00, or latest"
        raise PointError(f"`{text}` is not a valid point in time", subject=text, hint=hint) from None
    try:
        # A time without a zone is the reader's own, as their clock on the wall shows it.
        seconds = (moment.astimezone() if moment.tzinfo is None else moment).timestamp()
    except (OverflowError, ValueError, OSError):
        raise PointError(f"`{text}` is too far from now", subject=text, hint="or csn:N") from None
    return catalog.csn_at(seconds)


def check_covered(catalog: Catalog, name: str, csn: int, covered: Covered, what: str) -> None:
    """Refuses a csn outside the interval, and says what the interval is."""
    if covered.oldest <= csn <= covered.newest:
        _refuse_condensed(catalog, name, csn, what)
        return
    side = "before" if csn < covered.oldest else "after"
    message = f"view {name} cannot be {what} csn {csn}: that is {side} what its view delta covers"
    hint = f"possible: {show(catalog, covered.oldest)} to {show(catalog, covered.newest)}"
    raise PointError(message, subject=name, hint=hint)


def _refuse_condensed(catalog: Catalog, name: str, csn: int, what: str) -> None:
    if (around := condensed_around(catalog.condensed(name), csn)) is not None:
        message = f"view {name} cannot be {what} csn {csn}: its delta is condensed or recomputed there"
        hint = f"possible nearby: {show(catalog, around.after)} and {show(catalog, around.upto)}"
        raise PointError(message, subject=name, hint=hint)


def newest_uncondensed(catalog: Catalog, names: Iterable[str], csn: int) -> int:
    """The newest csn, not after this one, that lies inside no condensed range of these views."""
    ranges = [each for name in names for each in catalog.condensed(name)]
    while (around := condensed_around(ranges, csn)) is not None:
        csn = around.after
    return csn


def show(catalog: Catalog, csn: int) -> str:
    """A csn with its commit time."""
    when = catalog.commit_time(csn)
    return f"csn:{csn} ({iso(when)})" if when else f"csn:{csn}"


def iso(moment: float | None) -> str:
    """A commit time for people and machines: ISO, UTC, milliseconds."""
    if moment is None or moment <= 0:
        return ""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
