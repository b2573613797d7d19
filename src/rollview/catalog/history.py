"""The history of captured units of work: csn, versions, source txids and times, each found by an index.

It agrees with `algebra.history.History` on everything that has not been pruned. `forget` leaves the
newest unit that was pruned, and for every site and table the newest entry up to there: they are
the floor that later questions stand on. What lies below the floor is refused, never answered wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select

from rollview.algebra.history import Seen
from rollview.catalog import schema
from rollview.catalog.captured import read_site, require_tables
from rollview.catalog.database import Database
from rollview.errors import CatalogError, HistoryPruned, UnitSplit

_unit, _part, _touch = schema.unit_of_work.c, schema.part.c, schema.touch.c

_AT_ONCE = 500
"""Numbers in one IN list; databases limit the parameters of a statement."""


def last_csn(connection: Connection) -> int:
    """The newest csn; 0 before all history."""
    return connection.scalar(select(func.max(_unit.csn))) or 0


def commit_time(connection: Connection, csn: int) -> float | None:
    """When a unit of work was committed; None if it is not known, or not any more."""
    return connection.scalar(select(_unit.commit_time).where(_unit.csn == csn))


def csn_at(connection: Connection, time: float) -> int:
    """The greatest csn with at most this commit time. Commit times never fall as csn grow."""
    until = select(_unit.csn).where(_unit.commit_time <= time)
    return connection.scalar(until.order_by(_unit.commit_time.desc(), _unit.csn.desc()).limit(1)) or 0


def next_csn_touching(connection: Connection, tables: Sequence[str], after: int, transactions: int) -> int:
    """The csn of the n-th unit after a csn that touched any of the tables; the last csn if fewer did."""
    require_tables(connection, tables)
    _require_kept(connection, after)
    touching: set[int] = set()
    for table in set(tables):
        of_table = select(_touch.csn).where(_touch.table_name == table, _touch.csn > after)
        touching.update(connection.scalars(of_table.order_by(_touch.csn).limit(transactions)))
    if len(touching) < transactions:
        return last_csn(connection)
    return sorted(touching)[transactions - 1]


def last_csn_touching(connection: Connection, tables: Sequence[str], upto: int) -> int | None:
    """The last csn up to this one at which any of the tables changed; None if that is not known any more.

    Where none ever did, it is the csn at which the last of their histories began.
    """
    names = schema.captured_table.c
    require_tables(connection, tables)
    begun = select(names.origin_csn).where(names.name.in_(tables))
    last: list[int] = [0, *connection.scalars(begun)]
    floor = connection.scalar(select(func.min(_unit.csn))) or 0
    if upto < max(last) or upto < floor > 1:
        return None
    for table in tables:
        own = select(func.max(_touch.csn)).where(_touch.table_name == table, _touch.csn <= upto)
        last.append(connection.scalar(own) or 0)
    return max(last)


def touched(connection: Connection, table: str, after: int, upto: int) -> int:
    """How many rows of a table changed with after < csn ≤ upto."""
    require_tables(connection, [table])
    if after >= upto:
        return 0
    _require_kept(connection, after)
    return _total_at(connection, table, upto) - _total_at(connection, table, after)


def version_at(connection: Connection, site: str, csn: int) -> int:
    """The version of a site that the warehouse's order has reached at a csn."""
    of_site = select(_part.version).where(_part.site == site, _part.csn <= csn)
    version = connection.scalar(of_site.order_by(_part.csn.desc(), _part.version.desc()).limit(1))
    return _require_first(connection, site) if version is None else version


def in_csn(connection: Connection, site: str, seen: Seen) -> Seen:
    """A set of a site's versions as a set of csn, valid for this site's tables."""
    wanted = {seen.upto, *seen.holes} - {0}
    csns = dict(_look_up(connection, site, "version", "csn", wanted))
    if missing := wanted - csns.keys():
        if max(missing) > read_site(connection, site).version:
            raise CatalogError(
                f"version {max(missing)} of site {site} has not been captured yet",
                subject=site,
                hint="run `rollview capture` first: an answer has a place once all that it saw is captured",
            )
        raise _pruned(site)
    found = Seen(csns.get(seen.upto, 0), frozenset(csns[hole] for hole in seen.holes))
    together = _look_up(connection, site, "csn", "version", csns.values())
    if any((csn in found) != (version in seen) for csn, version in together):
        raise UnitSplit(
            f"an answer of {site} saw only a part of a unit of work: global transactions crossed there",
            subject=site,
            hint="ask again",
        )
    return found


def csn_reaching(connection: Connection, site: str, reach: int | Callable[[str], bool]) -> int:
    """The first csn that shows all of a site's transactions up to a place, or up to the last by id."""
    version = _latest_at(connection, site, reach) if isinstance(reach, int) else None
    if not isinstance(reach, int):
        ids = select(_part.version, _part.transaction_id).where(_part.site == site)
        newest_first = connection.execute(ids.order_by(_part.version.desc()))
        version = next((each.version for each in newest_first if reach(each.transaction_id)), None)
    if version is not None:
        return csn_of(connection, site, version)
    _require_first(connection, site)
    first = connection.scalar(select(func.min(_part.csn)).where(_part.site == site))
    return last_csn(connection) if first is None else first - 1


def _latest_at(connection: Connection, site: str, place: int) -> int | None:
    """The newest version up to a place; None if all are behind it."""
    of_site = select(_part.version).where(_part.site == site)
    upto = of_site.where(_part.place > 0, _part.place <= place)
    version: int | None = connection.scalar(upto.order_by(_part.place.desc(), _part.version.desc()).limit(1))
    if version is None and connection.scalar(of_site.where(_part.place == 0).limit(1)) is not None:
        raise _pruned(site)
    return version


def csn_of(connection: Connection, site: str, version: int) -> int:
    """The csn that a captured version of a site has."""
    csn = connection.scalar(select(_part.csn).where(_part.site == site, _part.version == version))
    if csn is None:
        raise _pruned(site)
    return int(csn)


def forget(connection: Connection, upto: int) -> None:
    """Forgets units up to a csn, except what later questions need."""
    upto = min(upto, last_csn(connection))
    connection.execute(delete(schema.unit_of_work).where(_unit.csn < upto))
    connection.execute(delete(schema.truncation).where(schema.truncation.c.csn < upto))
    # The greatest csn up to there of every site and table stays, so a site's versions and a table's
    # running total keep a place to continue from.
    for table, name in ((schema.part, _part.site), (schema.touch, _touch.table_name)):
        last = select(name, func.max(table.c.csn)).where(table.c.csn <= upto).group_by(name)
        for owner, csn in connection.execute(last).all():
            connection.execute(delete(table).where(name == owner, table.c.csn < csn))


@dataclass(frozen=True)
class SiteTxids:
    """What has been captured of one site, for translating what an answer saw.

    The log position is the one of the moment this was made. What `latest` and `versions` tell is at least as
    new, so whatever lies before the log position is known to them.
    """

    database: Database
    site: str
    log_position: str

    def latest(self, source_txid: int) -> int:
        """The greatest version whose source txid is ≤ this one; 0 if there is none."""
        with self.database.reading() as connection:
            of_site = select(_part.version).where(_part.site == self.site)
            grows = select(schema.site.c.source_txids_grow).where(schema.site.c.name == self.site)
            if connection.scalar(grows):
                newest = of_site.where(_part.source_txid <= source_txid).order_by(_part.source_txid.desc())
            else:
                # From the newest version back: an answer is about as new as what has been captured. The
                # sum keeps the database from collecting and sorting all smaller source txids instead.
                newest = of_site.where(_part.source_txid + 0 <= source_txid).order_by(_part.version.desc())
            version = connection.scalar(newest.limit(1))
            return _require_first(connection, self.site) if version is None else version

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        """The versions of these source txids, of those that have been captured."""
        with self.database.reading() as connection:
            return versions_of(connection, self.site, source_txids)

    def since(self, source_txid: int) -> dict[int, int]:
        """The versions of all captured source txids that are at least this one."""
        with self.database.reading() as connection:
            found = select(_part.source_txid, _part.version).where(
                _part.site == self.site, _part.source_txid >= source_txid
            )
            return {each.source_txid: each.version for each in connection.execute(found)}


def versions_of(connection: Connection, site: str, source_txids: Iterable[int]) -> dict[int, int]:
    """The versions of a site's source txids, of those that are kept."""
    return dict(_look_up(connection, site, "source_txid", "version", source_txids))


def _look_up(
    connection: Connection, site: str, given: str, wanted: str, numbers: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of a given number and the wanted one beside it, of the parts of a site."""
    ordered = sorted(set(numbers))
    for first in range(0, len(ordered), _AT_ONCE):
        some = ordered[first : first + _AT_ONCE]
        pairs = select(_part[given], _part[wanted]).where(_part.site == site, _part[given].in_(some))
        yield from connection.execute(pairs)


def _total_at(connection: Connection, table: str, csn: int) -> int:
    """The table's running total after a csn that is not below the floor."""
    of_table = select(_touch.total).where(_touch.table_name == table)
    total = connection.scalar(of_table.where(_touch.csn <= csn).order_by(_touch.csn.desc()).limit(1))
    if total is None:
        before_first = select(_touch.total - _touch.changed).where(_touch.table_name == table)
        total = connection.scalar(before_first.order_by(_touch.csn).limit(1))
    return total or 0


def _require_kept(connection: Connection, after: int) -> None:
    """Refuses a range that begins below the floor."""
    floor = connection.scalar(select(func.min(_unit.csn))) or 1
    if after < floor - 1:
        raise HistoryPruned(
            f"the history after csn {after} is no longer kept: it begins with csn {floor}",
            subject=f"csn {after}",
            hint="reload the view, or keep the history for longer (`retention` in the project file)",
        )


def _require_first(connection: Connection, site: str) -> int:
    """Version 0, for what lies before all kept versions of a site; refused if some have been forgotten."""
    first = connection.scalar(select(func.min(_part.version)).where(_part.site == site))
    if first is None:
        read_site(connection, site)
    elif first > 1:
        raise _pruned(site)
    return 0


def _pruned(site: str) -> HistoryPruned:
    return HistoryPruned(
        f"the versions of site {site} that were asked about are no longer kept",
        subject=site,
        hint="query the source again: a new answer sees versions that are kept",
    )
