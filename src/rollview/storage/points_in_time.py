"""Points in time, as users write them.

`csn:N`, an ISO time, `-1h` for an hour ago, `SOURCE:POSITION` in the source's own words (`crm:0/1A2B3C4`,
`store:0-1-42`), or `latest`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rollview.algebra.net_effect import condensed_around
from rollview.catalog import Catalog
from rollview.config.durations import seconds_of
from rollview.errors import PointError
from rollview.runtime.sites import Sites
from rollview.sources.source import KnowsPositions

_CSN = re.compile(r"[0-9]{1,18}")
_PIECE = re.compile(r"[0-9]+(?:\.[0-9]+)? *[a-z]+")

_AHEAD_SECONDS = 60.0
"""So far may the clocks of sources be ahead of ours."""


@dataclass(frozen=True)
class Covered:
    """The csn from the oldest that can be read to the high-water mark."""

    oldest: int
    newest: int


@dataclass(frozen=True)
class PointsInTime:
    """Parses and resolves points in time."""

    catalog: Catalog
    sites: Sites

    def resolve(self, text: str | int, latest: int) -> int:
        """The csn that a user means.

        A time means the last csn committed by then, a position of a source the first csn that shows all up to
        there.
        """
        if isinstance(text, int):
            return text
        word = text.strip()
        if word.lower() == "latest":
            return latest
        prefix, _, rest = word.partition(":")
        if prefix.lower() == "csn":
            if not _CSN.fullmatch(rest.strip()):
                raise PointError(f"`{text}` is not a valid csn", subject=text, hint="for example csn:42")
            return int(rest)
        if rest and prefix in (sites := self.catalog.captured.sites()):
            source = self.sites.source_at(prefix)
            if isinstance(source, KnowsPositions):
                return self.catalog.history.csn_reaching(
                    prefix, source.reach(prefix, rest.strip(), sites[prefix].log_position)
                )
            message = f"a source of type {source.kind} has no positions that its users know"
            raise PointError(message, subject=text, hint="csn:N, a time, or latest")
        seconds = _seconds(text, word)
        if seconds > time.time() + _AHEAD_SECONDS:
            raise PointError(
                f"`{text}` has not come yet", subject=text, hint="write latest for what there is"
            )
        csn = self.catalog.history.csn_at(seconds)
        if not csn and seconds < self.catalog.history.created_at():
            message = f"`{text}` is before the project was set up: nothing is known of that time"
            raise PointError(message, subject=text, hint="possible: csn:0, the first load, and later")
        return csn


def _seconds(text: str, word: str) -> float:
    """The time that a word means, in seconds since 1970."""
    if word.startswith("-") and (ago := _ago(word[1:])) is not None:
        return time.time() - ago
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        hint = "csn:N, a time such as 2026-01-31T12:00:00, -1h for an hour ago, SOURCE:POSITION, or latest"
        raise PointError(f"`{text}` is not a valid point in time", subject=text, hint=hint) from None
    try:
        # A time without a zone is the reader's own, as their clock on the wall shows it.
        return (moment.astimezone() if moment.tzinfo is None else moment).timestamp()
    except (OverflowError, ValueError, OSError):
        raise PointError(f"`{text}` is too far from now", subject=text, hint="or csn:N") from None


def _ago(text: str) -> float | None:
    """Durations one after the other, as in 1h30m, in seconds; None if it is something else."""
    pieces = _PIECE.findall(text)
    if not pieces or "".join(pieces) != text:
        return None
    found = [seconds_of(piece) for piece in pieces]
    return sum(each for each in found if each is not None) if None not in found else None


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
    if (around := condensed_around(catalog.views.condensed(name), csn)) is not None:
        message = f"view {name} cannot be {what} csn {csn}: its delta is condensed or recomputed there"
        hint = f"possible nearby: {show(catalog, around.after)} and {show(catalog, around.upto)}"
        raise PointError(message, subject=name, hint=hint)


def newest_uncondensed(catalog: Catalog, names: Iterable[str], csn: int) -> int:
    """The newest csn, not after this one, that lies inside no condensed range of these views."""
    ranges = [each for name in names for each in catalog.views.condensed(name)]
    while (around := condensed_around(ranges, csn)) is not None:
        csn = around.after
    return csn


def show(catalog: Catalog, csn: int) -> str:
    """A csn with its commit time."""
    when = catalog.history.commit_time(csn)
    return f"csn:{csn} ({iso(when)})" if when else f"csn:{csn}"


def iso(moment: float | None) -> str:
    """A commit time for people and machines: ISO, UTC, milliseconds."""
    if moment is None or moment <= 0:
        return ""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
