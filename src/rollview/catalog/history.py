"""The history of captured units of work: csn, versions, source txids and times, each found by an index.

It agrees with `lab.memory.history.History` on everything that has not been pruned. `forget` leaves the
newest unit that was pruned, and for every site and table the newest entry up to there: they are
the floor of later questions. Questions below the floor are refused, never answered wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.catalog import schema
from rollview.catalog.captured import read_site, register, require_tables, unregister
from rollview.catalog.database import Database
from rollview.catalog.faults import note_fault
from rollview.catalog.records import Fault, Truncation
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


def units_touching(connection: Connection, tables: Sequence[str], after: int, upto: int) -> int:
    """How many units with after < csn ≤ upto touched any of the tables, as far as they are kept."""
    within = (_touch.table_name.in_(set(tables)), _touch.csn > after, _touch.csn <= upto)
    return connection.scalar(select(func.count(_touch.csn.distinct())).where(*within)) or 0


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
        # As a stream: PostgreSQL's driver would fetch all of them first.
        streamed = ids.order_by(_part.version.desc()).execution_options(yield_per=100)
        with connection.execute(streamed) as newest_first:
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
    """The captured source txids of one site, for translating what an answer saw.

    The log position is the one of the moment this was made. What `latest` and `versions` return is at least
    as new, so whatever lies before the log position is known to them.
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


# Where captured tables were truncated: a reading from one side cannot be rolled to the other.


_truncation = schema.truncation.c


def note_truncations(connection: Connection, found: Sequence[Truncation]) -> None:
    """Writes down truncations of units that become history."""
    for each in found:
        connection.execute(insert(schema.truncation).values(table_name=each.table, csn=each.csn))


def read_truncations(connection: Connection, tables: Collection[str], after: int) -> list[Truncation]:
    """The truncations of tables behind a csn, in the order of the history."""
    found = select(_truncation.table_name, _truncation.csn).where(
        _truncation.table_name.in_(tables), _truncation.csn > after
    )
    return [Truncation(*row) for row in connection.execute(found.order_by(_truncation.csn))]


def end_histories(connection: Connection, tables: Sequence[str], now: float) -> None:
    """Invalidates what is known of the changes of tables; a csn of its own records that."""
    unregister(connection, tables)
    if tables:
        last = last_csn(connection)
        when = max(now, commit_time(connection, last) or 0.0)
        connection.execute(insert(schema.unit_of_work).values(csn=last + 1, commit_time=when))


@dataclass(frozen=True)
class History:
    """The one history of all sites, and the histories of tables in it."""

    database: Database
    clock: Callable[[], float]

    def restart(
        self,
        gone: Sequence[str],
        tables: Sequence[Table],
        origins: Mapping[str, tuple[str, str]],
        noted: Sequence[Fault] = (),
    ) -> None:
        """Lets the history of tables begin again, at once: some go, these come.

        It begins at a csn of its own, since what was committed in between has none: no csn may stand for two
        states. Views that are before that csn can still be read, but not be propagated any more; `noted` is
        what keeps them.
        """
        with self.database.writing() as connection:
            end_histories(connection, gone, self.clock())
            register(connection, tables, origins)
            for fault in noted:
                note_fault(connection, fault, self.clock())

    def last_csn(self) -> int:
        """The newest csn; 0 before all history."""
        with self.database.reading() as connection:
            return last_csn(connection)

    def continue_from(self, csn: int, commit_time: float) -> None:
        """Lets the history of a new catalog continue after a csn that an earlier one has assigned."""
        with self.database.writing() as connection:
            if csn > last_csn(connection):
                connection.execute(insert(schema.unit_of_work).values(csn=csn, commit_time=commit_time))

    def commit_time(self, csn: int) -> float | None:
        """When a unit was committed; None for csn 0 and for what was pruned."""
        with self.database.reading() as connection:
            return commit_time(connection, csn)

    def csn_at(self, commit_time: float) -> int:
        """The greatest csn that was committed at this time or before; 0 if none is kept."""
        with self.database.reading() as connection:
            return csn_at(connection, commit_time)

    def next_csn_touching(self, tables: Sequence[str], after: int, transactions: int) -> int:
        """The csn of the n-th unit after `after` that touched any of the tables; else the last csn."""
        with self.database.reading() as connection:
            return next_csn_touching(connection, tables, after, transactions)

    def created_at(self) -> float:
        with self.database.reading() as connection:
            return connection.scalar(select(func.min(schema.schema_version.c.applied_at))) or 0.0

    def units_touching(self, tables: Sequence[str], after: int, upto: int) -> int:
        """How many units with after < csn ≤ upto touched any of the tables, as far as they are kept."""
        with self.database.reading() as connection:
            return units_touching(connection, tables, after, upto)

    def last_csn_touching(self, tables: Sequence[str], upto: int) -> int | None:
        """The last csn up to this one at which any of the tables changed; None if that is not known."""
        with self.database.reading() as connection:
            return last_csn_touching(connection, tables, upto)

    def csn_reaching(self, site: str, reach: int | Callable[[str], bool]) -> int:
        """The first csn that shows all of a site's transactions up to a place, or up to the last by id."""
        with self.database.reading() as connection:
            return csn_reaching(connection, site, reach)

    def version_at(self, site: str, csn: int) -> int:
        """The version of a site that the history has reached at a csn."""
        with self.database.reading() as connection:
            return version_at(connection, site, csn)

    def in_csn(self, site: str, seen: Seen) -> Seen:
        """A set of a site's versions as a set of csn; UnitSplit if it holds only a part of a unit."""
        with self.database.reading() as connection:
            return in_csn(connection, site, seen)

    def csn_of(self, site: str, version: int) -> int:
        """The csn of a site's version; refused if it has been forgotten."""
        with self.database.reading() as connection:
            return csn_of(connection, site, version)

    def source_txids(self, site: str) -> SiteTxids:
        """The captured source txids of a site, as of now."""
        with self.database.reading() as connection:
            return SiteTxids(self.database, site, read_site(connection, site).log_position)

    def touched(self, table: str, after: int, upto: int) -> int:
        """How many rows of a table changed with after < csn ≤ upto."""
        with self.database.reading() as connection:
            return touched(connection, table, after, upto)

    def truncations(self, tables: Collection[str], after: int = 0) -> list[Truncation]:
        """Where tables were truncated behind a csn, in order."""
        with self.database.reading() as connection:
            return read_truncations(connection, tables, after)

    def prune(self, upto: int) -> None:
        """Forgets the units before `upto`; unit `upto` stays, for later ones to follow on.

        Questions about later csn are answered as before; those about earlier ones raise HistoryPruned.
        """
        with self.database.writing() as connection:
            forget(connection, upto)

    def touching(self, tables: Sequence[str], after: int, upto: int) -> dict[str, frozenset[int]]:
        """For each table the csn with after < csn ≤ upto at which it changed."""
        found = {}
        with self.database.reading() as connection:
            for table in tables:
                own = select(_touch.csn).where(_touch.table_name == table)
                found[table] = frozenset(
                    connection.scalars(own.where(_touch.csn > after, _touch.csn <= upto))
                )
        return found

    def changed_rows(self, table: str, after: int, upto: int) -> dict[int, int]:
        """For each csn with after < csn ≤ upto at which a table changed, how many of its rows did.

        Of a transaction that was too large to be counted, some of them.
        """
        own = select(_touch.csn, _touch.changed).where(_touch.table_name == table)
        with self.database.reading() as connection:
            _require_kept(connection, after)
            found = connection.execute(own.where(_touch.csn > after, _touch.csn <= upto))
            return {row.csn: row.changed for row in found}

    def of_site(self, site: str, source_txid: int, upto: int) -> list[tuple[int, int]]:
        """The csn and source txids of a site's transactions up to a csn, in their order.

        From the first on that has at least this source txid.
        """
        with self.database.reading() as connection:
            least = select(func.min(_part.version)).where(_part.site == site)
            first = connection.scalar(least.where(_part.source_txid >= source_txid))
            if first is None:
                return []
            own = select(_part.csn, _part.source_txid).where(_part.site == site, _part.version >= first)
            rows = connection.execute(own.where(_part.csn <= upto).order_by(_part.version))
            return [(row.csn, row.source_txid) for row in rows]

    def kept_since(self) -> float:
        """The commit time of the first one that is kept; long ago if none has been forgotten."""
        first = select(_unit.csn, _unit.commit_time).order_by(_unit.csn).limit(1)
        with self.database.reading() as connection:
            row = connection.execute(first).first()
        return row.commit_time if row is not None and row.csn > 1 else float("-inf")
