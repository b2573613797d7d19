"""The statements that lead from the publication as it is to the one that is wanted, and register it.

A table that is as it was registered is left alone. All others are registered anew: under a lock, as complete
from here on. What others did to the publication, such as a row filter, is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.damage import Damage, combined, damage, damage_of_all
from rollview.sources.postgres.fingerprint import Fingerprint, look
from rollview.sources.postgres.install_plan import InstallPlan
from rollview.sources.postgres.partitions import TABLE, to_alter
from rollview.sources.postgres.registration import (
    Registered,
    Registration,
    Renewal,
    decode,
    register,
    registration_statement,
)
from rollview.sources.postgres.slot import slot_of
from rollview.sources.postgres.structure import GENERATED_SINCE, Structure
from rollview.sources.source import Table


@dataclass(frozen=True)
class Publication:
    """The publication as it is now. `members` are the ids of its tables; `is_ours`: we may alter it.

    `registration` is what its comment says, None if that is not what setup wrote.
    """

    registration: Registration | None
    members: frozenset[int]
    is_ours: bool
    is_of_all_tables: bool

    @property
    def tables(self) -> Mapping[str, Registered]:
        """The registered tables."""
        return self.registration.tables if self.registration is not None else {}


def read_publication(connection: Connection, address: Address) -> Publication | None:
    """The publication with what its comment says; None if there is none."""
    row = connection.execute(
        "SELECT pg_has_role(p.pubowner, 'USAGE'), coalesce(obj_description(p.oid, 'pg_publication'), ''),"
        " ARRAY(SELECT r.prrelid::int8 FROM pg_publication_rel r WHERE r.prpubid = p.oid), p.puballtables"
        " FROM pg_publication p WHERE p.pubname = %s",
        (address.slot,),
    ).fetchone()
    if row is None:
        return None
    is_ours, comment, members, is_of_all_tables = row
    return Publication(decode(comment), frozenset(members), is_ours, is_of_all_tables)


def plan_publication(
    connection: Connection,
    address: Address,
    plan: InstallPlan,
    wanted: Mapping[Table, Structure],
    known: Iterable[Structure],
) -> None:
    """Adds the statements to a plan."""
    planning = _Planning(connection, address, plan, wanted)
    planning.lock()
    planning.set_identities()
    planning.alter(known)
    planning.register()


def plan_identity_back(plan: InstallPlan, table: Registered, now: Structure | None) -> None:
    """Gives a table the replica identity that it had, if it is still the one that we gave it.

    A partition that was not there when its table was registered had the one that all new tables have.
    """
    if now is None or now.id != table.id:
        return
    had = {table.id: table.identity} | {each.id: each.identity for each in table.partitions}
    for each in now.stored:
        before = had.get(each.id, "DEFAULT")
        if each.kind == TABLE and each.identity == "FULL" and before != "FULL":
            statement = f"ALTER TABLE {each.qualified} REPLICA IDENTITY {before}"
            plan.add(statement, f"table {each.name} logs old rows as before", each.is_ours)


def _as_asked(registered: Registered, table: Table) -> Registered:
    """With numbers of as many digits as are asked for: whoever goes on as before has room for no more."""
    kinds = dict(zip(table.columns, table.types, strict=True))
    columns = tuple(
        replace(column, type=kinds[column.name])
        if column.type.startswith("decimal") and kinds[column.name].startswith("decimal")
        else column
        for column in registered.columns
    )
    return replace(registered, columns=columns)


@dataclass(frozen=True)
class _Planning:
    """`wanted` are the tables to be captured, as views know them and as they are."""

    connection: Connection
    address: Address
    plan: InstallPlan
    wanted: Mapping[Table, Structure]

    @cached_property
    def before(self) -> Publication | None:
        """The publication."""
        return read_publication(self.connection, self.address)

    @cached_property
    def now(self) -> Fingerprint | None:
        """How the wanted tables and the registered ones are: one may be another table by now."""
        registered = self.before.tables if self.before is not None else {}
        fresh = [register(structure, table.columns) for table, structure in self.wanted.items()]
        return look(self.connection, self.address, [*registered.values(), *fresh])

    @cached_property
    def is_ours(self) -> bool:
        """Whether the publication is the one that setup created."""
        registration = self.before.registration if self.before is not None else None
        was = registration.publication if registration is not None else None
        return was is not None and self.now is not None and was.id == self.now.publication.id

    @cached_property
    def of_all(self) -> str:
        """What happened to the publication."""
        registration = self.before.registration if self.before is not None else None
        if self.now is not None and registration is not None and self.is_ours:
            return damage_of_all(registration, self.now, self.address.slot)
        # A slot is left of what setup once made.
        is_known = slot_of(self.connection, self.address) is not None
        return f"publication {self.address.slot}, or the comment on it, was replaced" if is_known else ""

    @cached_property
    def registered(self) -> dict[str, Registered]:
        """All wanted tables as they will be registered; those that are intact as they are."""
        before = self.before.tables if self.before is not None else {}
        found = {}
        for table, structure in self.wanted.items():
            old = before.get(structure.name)
            new = _as_asked(register(structure, table.columns, old), table)
            damages = [*self._damages(table, old), *self._added(table, old, new)]
            reason = combined(damages)
            renewals: tuple[Renewal, ...]
            if old is None or (reason is not None and not reason.columns):
                renewals = () if reason is None else (Renewal(reason.reason),)
                found[structure.name] = replace(new, renewals=renewals)
            elif reason is not None:
                renewals = (*old.renewals, *(Renewal(each.reason, each.columns) for each in damages))
                found[structure.name] = replace(new, renewals=renewals, member=old.member)
            elif [column.name for column in new.columns] != [column.name for column in old.columns]:
                found[structure.name] = replace(new, renewals=old.renewals, member=old.member)
            else:
                found[structure.name] = old
        return found

    def _damages(self, table: Table, old: Registered | None) -> list[Damage]:
        """Why a table is registered anew; nothing for one that is intact, or new."""
        if self.of_all:
            return [Damage(self.of_all)]
        place = f"{self.address.source}.{table.name}"
        if old is not None and self.now is not None:
            found = damage(old, self.now, place)
            return [] if found is None else [found]
        registration = self.before.registration if self.before is not None else None
        is_back = registration is not None and table.name in registration.released
        return [Damage(f"table {place} was not captured for a while")] if is_back else []

    def _added(self, table: Table, old: Registered | None, new: Registered) -> list[Damage]:
        """Columns that were not captured before, or as another type."""
        if old is None:
            return []
        names = tuple(column.name for column in new.columns if column.name not in old.by_name)
        shown = ", ".join(names)
        place = f"{self.address.source}.{table.name}"
        wider = tuple(
            column.name
            for column in new.columns
            if column.name in old.by_name and column.type != old.by_name[column.name].type
        )
        return [
            *([Damage(f"{shown} of table {place} was not captured before", names)] if names else []),
            *([Damage(f"{', '.join(wider)} of table {place} has a wider type", wider)] if wider else []),
        ]

    @cached_property
    def fresh(self) -> list[Structure]:
        """The tables that are registered anew, for more than another choice of columns."""
        before = self.before.tables if self.before is not None else {}
        return [
            structure
            for table, structure in self.wanted.items()
            if structure.name not in before or self._damages(table, before[structure.name])
        ]

    def lock(self) -> None:
        """A transaction that has written such a table and is still open would be captured by half.

        So it is waited for. New writers wait with us, so the lock is given up soon and tried again.
        """
        if self.fresh:
            tables = ", ".join(table.qualified for table in self.fresh)
            ours = all(table.is_ours for table in self.fresh)
            self.plan.add(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", "", ours)

    def set_identities(self) -> None:
        """Old rows are logged in full.

        New partitions do not do that by themselves. Who may not see to it can wait until that matters.
        """
        before = self.before.tables if self.before is not None else {}
        for table in self.wanted.values():
            is_known = table.name in before and before[table.name].id == table.id
            for each in to_alter(table.stored):
                statement = f"ALTER TABLE {each.qualified} REPLICA IDENTITY FULL"
                if each.is_ours or each.id == table.id or not is_known:
                    self.plan.add(statement, f"table {each.name} now logs old rows in full", each.is_ours)
                    continue
                self.plan.warnings.append(
                    f"partition {each.name} of table {self.address.source}.{table.name} does not log old rows"
                    f" in full: its views stop when rows there are updated or deleted, unless its owner runs"
                    f" `{statement}` before"
                )

    def alter(self, known: Iterable[Structure]) -> None:
        """The publication has exactly these tables, with all that happens to them."""
        name, before, now = quote(self.address.slot), self.before, self.now
        if before is not None and before.is_of_all_tables:
            self.plan.add(
                f"DROP PUBLICATION {name}", f"dropped publication {self.address.slot}", before.is_ours
            )
            before = None
        if before is None or now is None:
            self._create(name)
            return
        if not now.publishes_all:
            statement = f"ALTER PUBLICATION {name} SET ({self._options})"
            self.plan.add(statement, "all changes are published again", before.is_ours)
        wanted = {each.id for each in self.wanted.values()}
        for table in known:
            if table.id in before.members and table.id not in wanted:
                statement = f"ALTER PUBLICATION {name} DROP TABLE {table.qualified}"
                self.plan.add(statement, f"table {table.name} is no longer captured", before.is_ours)
                if table.name in before.tables:
                    plan_identity_back(self.plan, before.tables[table.name], table)
        for table in self.wanted.values():
            found = now.tables.get(table.id)
            is_partial = found is not None and (found.has_row_filter or found.has_column_list)
            if is_partial:
                self.plan.add(f"ALTER PUBLICATION {name} DROP TABLE {table.qualified}", "", before.is_ours)
            if table.id not in before.members or is_partial:
                statement = f"ALTER PUBLICATION {name} ADD TABLE {table.qualified}"
                self.plan.add(statement, "", before.is_ours and table.is_ours)

    def _create(self, name: str) -> None:
        row = self.connection.execute(
            "SELECT has_database_privilege(current_database(), 'CREATE')"
        ).fetchone()
        assert row is not None
        wanted = list(self.wanted.values())
        tables = f" FOR TABLE {', '.join(table.qualified for table in wanted)}" if wanted else ""
        self.plan.add(
            f"CREATE PUBLICATION {name}{tables} WITH ({self._options})",
            f"created publication {self.address.slot} of {len(wanted)} tables",
            all(table.is_ours for table in wanted) and bool(row[0]),
        )

    @property
    def _options(self) -> str:
        options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"
        if self.connection.info.server_version >= GENERATED_SINCE:
            # A table that logs old rows in full cannot be updated if not all of its columns are published.
            options += ", publish_generated_columns = stored"
        return options

    def register(self) -> None:
        """The comment, and what became of tables that were registered before."""
        before = self.before.registration if self.before is not None else None
        old = before or Registration()
        for name, table in self.registered.items():
            if name not in old.tables and before is not None:
                self.plan.done.append(f"table {name} is now captured")
            elif name in old.tables:
                self.plan.done += [
                    f"table {name} is captured anew: {each.reason}"
                    for each in table.renewals
                    if each.since is None
                ]
        new = Registration(
            self.registered,
            None if self.of_all else old.publication,
            (old.released | old.tables.keys()) - self.registered.keys(),
            old.readable_since if self.is_ours else 0,
        )
        if new != before:
            self.plan.has_new_publication = not self.is_ours
            is_ours = self.before is None or self.before.is_ours
            self.plan.add(registration_statement(self.address, new), "", is_ours)
