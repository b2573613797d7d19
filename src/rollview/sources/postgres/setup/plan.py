"""The statements that lead to the publication that is wanted, and what is registered when they are done.

A table that is as it was registered is left alone. All others are registered again, as complete from here on.
Changes of others to the publication, such as a row filter, are undone. A publication that its owner has named
in the project file is never altered from here: what it lacks is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import psycopg

from rollview.errors import CaptureRefused, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import (
    MAY_CREATE,
    Connection,
    may,
    quote,
    text_literal,
    transaction,
)
from rollview.sources.postgres.log.damage import (
    Damage,
    Fingerprint,
    combined,
    damage,
    damage_of_all,
    read_fingerprint,
)
from rollview.sources.postgres.log.slot import slot_of
from rollview.sources.postgres.partitions import Stored, to_alter
from rollview.sources.postgres.publication import (
    Publication,
    identities_elsewhere,
    identities_to_give_back,
    identity_statement,
    logs_as_before,
    note_of,
    publication_options,
    read_publication,
)
from rollview.sources.postgres.registration import (
    Registered,
    Registration,
    Released,
    Renewal,
    read_registration,
    register,
)
from rollview.sources.postgres.setup.schema_function import SchemaFunction, schema_functions
from rollview.sources.postgres.structure import Structure
from rollview.sources.source import SetupResult, Table

# The plan of setup or remove at a server, as data.


@dataclass
class InstallPlan:
    """The plan. `needed` is for the administrator; `statements` make one transaction.

    Then the writers of `fresh` tables are waited for, and it is registered; `begun` are those of them that
    were not captured before. `granted` are tables that the statements let us read. With
    `has_new_publication` the server cannot read what it has logged before.
    """

    statements: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    ours: bool = True
    granted: set[int] = field(default_factory=set)
    fresh: tuple[int, ...] = ()
    begun: frozenset[str] = frozenset()
    registration: Registration | None = None
    has_new_publication: bool = False
    is_first: bool = False

    def add(self, statement: str, sentence: str, ours: bool) -> None:
        """A statement, what it does, and whether we may run it."""
        self.statements.append(statement)
        if sentence:
            self.done.append(sentence)
        self.ours = self.ours and ours

    @property
    def result(self) -> SetupResult:
        """The plan as `setup` reports it."""
        done = () if self.needed else tuple(self.done)
        return SetupResult(done, tuple(self.warnings), tuple(self.needed), self.is_first)


# Statements of setup, all in one transaction that makes nobody wait.


_LOCK_SECONDS = 3
_ATTEMPTS = 10


def run_all(connection: Connection, address: Address, statements: Iterable[str]) -> None:
    """All in one transaction. Others must not wait behind a lock that we cannot get: it is tried again."""
    for attempt in range(_ATTEMPTS):
        try:
            with transaction(connection):
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
                for statement in statements:
                    connection.execute(statement.encode())
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if attempt == _ATTEMPTS - 1:
                raise SourceFailed(
                    f"source {address.source}: a table stayed locked for {_ATTEMPTS * _LOCK_SECONDS} s by"
                    " a transaction that uses it and is still open",
                    subject=address.source,
                    hint="end that transaction (see pg_stat_activity and pg_prepared_xacts), then try again",
                ) from None


def plan_publication(
    connection: Connection,
    address: Address,
    plan: InstallPlan,
    wanted: Mapping[Table, Structure],
    known: Iterable[Structure],
) -> None:
    """Adds the statements to a plan, and what is registered when they are done."""
    planning = _Planning(connection, address, plan, wanted, {each.id: each for each in known})
    planning.release()
    planning.create()
    planning.capture()
    planning.register()


def _as_asked(registered: Registered, table: Table) -> Registered:
    """With numbers of as many digits as requested: a table that continues as before has room for no more."""
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
    """`wanted` are the tables to be captured, as views know them and as they are; `known` are all by id."""

    connection: Connection
    address: Address
    plan: InstallPlan
    wanted: Mapping[Table, Structure]
    known: Mapping[int, Structure]

    @cached_property
    def before(self) -> Publication | None:
        """The publication."""
        return read_publication(self.connection, self.address)

    @cached_property
    def registration(self) -> Registration | None:
        return read_registration(self.connection, self.address)

    @cached_property
    def functions(self) -> Mapping[str, SchemaFunction]:
        """The functions that an administrator has left for us."""
        return schema_functions(self.connection, self.address)

    @property
    def old(self) -> Mapping[str, Registered]:
        """The registered tables."""
        return self.registration.tables if self.registration is not None else {}

    @cached_property
    def now(self) -> Fingerprint | None:
        """How the wanted tables and the registered ones are: one may be another table by now."""
        fresh = [register(structure, table.columns) for table, structure in self.wanted.items()]
        return read_fingerprint(self.connection, self.address, [*self.old.values(), *fresh])

    @cached_property
    def is_known(self) -> bool:
        """Whether the publication is the one that was registered."""
        was = self.registration.publication if self.registration is not None else None
        return was is not None and self.now is not None and was.id == self.now.publication.id

    @cached_property
    def of_all(self) -> str:
        """The damage of the publication."""
        if self.now is not None and self.registration is not None and self.is_known:
            return damage_of_all(self.registration, self.now, self.address.publication)
        if self.registration is not None:
            return f"publication {self.address.publication} was replaced by another one"
        # A slot is left of what setup once made.
        is_left = slot_of(self.connection, self.address) is not None
        return "what is captured is not registered any more" if is_left else ""

    @cached_property
    def registered(self) -> dict[str, Registered]:
        """All wanted tables as they will be registered; those that are intact as they are."""
        found = {}
        for table, structure in self.wanted.items():
            old = self.old.get(structure.name)
            new = self._new(table, structure, old)
            damages = [*self._damages(table, structure), *self._added(table, old, new)]
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
                found[structure.name] = replace(old, key=new.key)
        return found

    def _new(self, table: Table, structure: Structure, old: Registered | None) -> Registered:
        """A table as it is registered again. Its former replica identities are kept."""
        new = _as_asked(register(structure, table.columns, old), table)
        is_same = old is not None and old.id == structure.id
        noted = self.before.identities if self.before is not None else {}
        had = {**self._had_elsewhere, **noted, **self._had}
        known = old.identities if old is not None and is_same else {}
        partitions = tuple(
            each if each.id in known else each._replace(identity=had.get(each.id, each.identity))
            for each in new.partitions
        )
        if old is not None and is_same:
            return replace(new, partitions=partitions, beginning=old.beginning)
        return replace(new, partitions=partitions, identity=had.get(new.id, new.identity))

    def _damages(self, table: Table, structure: Structure) -> list[Damage]:
        """Why a table is registered again; nothing for one that is intact or new."""
        if self.of_all:
            return [Damage(self.of_all)]
        old, place = self.old.get(structure.name), f"{self.address.source}.{table.name}"
        if old is not None and self.now is not None:
            found = damage(old, self.now, place)
            if found is None and old.id != structure.id:
                found = Damage(f"{place} is another table than before, in schema {structure.schema}")
            return [] if found is None else [found]
        is_back = self.registration is not None and table.name in self.registration.released
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
        """The tables that are registered again, for more than another choice of columns."""
        return [
            structure
            for table, structure in self.wanted.items()
            if structure.name not in self.old or self._damages(table, structure)
        ]

    def _function(self, table: Stored) -> SchemaFunction | None:
        """The function that captures and releases a table for us that is not ours."""
        function = self.functions.get(table.schema)
        return function if function is not None and table.id in function.tables else None

    def release(self) -> None:
        """Lets go of tables that are not wanted any more, as far as we may.

        Tables that only the owner could take out stay in the publication, where they do no harm.
        """
        for table in self.known.values():
            if table.id in self._wanted or not self._may_drop(table):
                continue
            if self._is_member(table):
                sentence = "" if table.id in self._had else f"table {table.name} is no longer published"
                statement = (
                    f"ALTER PUBLICATION {quote(self.address.publication)} DROP TABLE ONLY {table.qualified}"
                )
                function = self._function(table) if table.id in self._had else None
                self.plan.add(statement if function is None else function.release(table, ""), sentence, True)
            for each, identity in self._owed(table):
                if (function := self._function(each)) is not None:
                    self.plan.add(function.release(each, identity), logs_as_before(each), True)
                elif each.is_ours:
                    self.plan.add(identity_statement(each, identity), logs_as_before(each), True)

    @property
    def _had(self) -> Mapping[int, str]:
        """The replica identities that tables had before they were captured, by id."""
        return self.registration.identities if self.registration is not None else {}

    @cached_property
    def _had_elsewhere(self) -> dict[int, str]:
        """The same of tables that are captured by other slots."""
        return identities_elsewhere(self.connection, self.address)

    def _owed(self, table: Structure) -> list[tuple[Stored, str]]:
        """The replica identities that are given back: none while another slot needs them as they are."""
        return [] if table.id in self._had_elsewhere else identities_to_give_back(table, self._had)

    @cached_property
    def _wanted(self) -> set[int]:
        return {table.id for table in self.wanted.values()}

    def _is_member(self, table: Structure) -> bool:
        """Whether a table is in our own publication on its own."""
        is_own = self.before is not None and not self.address.owners_publication
        return is_own and self.before is not None and table.id in self.before.members

    def _may_drop(self, table: Structure) -> bool:
        """Whether a table is out of our publication, or can be taken out."""
        if not self._is_member(table) or (self.before is not None and self.before.is_ours):
            return True
        return table.id in self._had and self._function(table) is not None

    def create(self) -> None:
        """There is a publication, and it publishes all that happens."""
        name, before = quote(self.address.publication), self.before
        if self.address.owners_publication:
            self._check_owners()
            return
        if before is not None and before.is_of_all_tables:
            sentence = f"dropped publication {self.address.publication}"
            self.plan.add(f"DROP PUBLICATION {name}", sentence, before.is_ours)
        if before is None or before.is_of_all_tables:
            statement = f"CREATE PUBLICATION {name} WITH ({publication_options(self.connection)})"
            sentence = f"created publication {self.address.publication} of {len(self.wanted)} tables"
            self.plan.add(statement, sentence, may(self.connection, MAY_CREATE))
        elif self.now is not None and not self.now.publishes_all:
            statement = f"ALTER PUBLICATION {name} SET ({publication_options(self.connection)})"
            self.plan.add(statement, "all changes are published again", before.is_ours)

    def _check_owners(self) -> None:
        """An owner's publication has to be there, and to publish all that happens."""
        name = self.address.publication
        if self.before is None or self.now is None:
            raise CaptureRefused(
                f"source {self.address.source}: there is no publication {name} in its database",
                subject=name,
                hint="check the option `publication`; without it, rollview has a publication of its own",
            )
        if not self.now.publishes_all:
            options = publication_options(self.connection)
            self.plan.add(f"ALTER PUBLICATION {quote(name)} SET ({options})", "", False)

    def capture(self) -> None:
        """Every wanted table can be read, logs old rows in full, and is published as a whole."""
        for table in self.wanted.values():
            self._set_identities(table)
            self._take_out_partitions(table)
            is_partial, is_missing = self._lacks(table)
            function = self._function(table)
            if table.readable and not (is_partial or is_missing):
                continue
            if function is not None and not self._is_left_to_owner(is_partial or is_missing):
                if is_partial:
                    self.plan.add(function.release(table, ""), "", True)
                self.plan.add(function.capture(table), "", True)
                self.plan.granted.add(table.id)
            else:
                self._publish(table, is_partial, is_missing)
        if not self.plan.ours and not self.address.owners_publication:
            self._note_identities()

    def _set_identities(self, table: Structure) -> None:
        """Old rows are logged in full.

        New partitions do not inherit that. Without the privilege to set it, setup waits until it matters.
        """
        old = self.old.get(table.name)
        is_known = old is not None and old.id == table.id
        for each in to_alter(table.stored):
            statement, sentence = (
                identity_statement(each, "FULL"),
                f"table {each.name} now logs old rows in full",
            )
            if (function := self._function(each)) is not None:
                self.plan.add(function.log(each), sentence, True)
            elif each.is_ours or each.id == table.id or not is_known:
                self.plan.add(statement, sentence, each.is_ours)
            else:
                self.plan.warnings.append(
                    f"partition {each.name} of table {self.address.source}.{table.name} does not log old rows"
                    f" in full: its views stop when rows there are updated or deleted, unless its owner runs"
                    f" `{statement}` before"
                )

    def _take_out_partitions(self, table: Structure) -> None:
        """A partition is published with its table: on its own it could have a row filter."""
        members = self.before.members if self.before is not None else frozenset()
        for each in table.partitions:
            if each.id in members:
                name, own = quote(self.address.publication), self.before is not None and self.before.is_ours
                sentence = f"partition {each.name} is published with its table alone"
                self.plan.add(f"ALTER PUBLICATION {name} DROP TABLE ONLY {each.qualified}", sentence, own)

    def _note_identities(self) -> None:
        """An administrator runs the statements: we would not know afterwards what they have changed."""
        noted = dict(self.before.identities) if self.before is not None else {}
        tables = [each for table in self.wanted.values() for each in to_alter(table.stored)]
        noted |= {table.id: table.identity for table in tables}
        if tables:
            name, text = quote(self.address.publication), text_literal(note_of(noted))
            self.plan.add(f"COMMENT ON PUBLICATION {name} IS {text}", "", False)

    def _is_left_to_owner(self, is_lacking: bool) -> bool:
        """Whether a table lacks a publication that no function alters for us."""
        is_created = self.before is not None and not self.before.is_of_all_tables
        return is_lacking and (bool(self.address.owners_publication) or not is_created)

    def _lacks(self, table: Structure) -> tuple[bool, bool]:
        """Whether a table is published in part only, and whether it is not published at all."""
        found = self.now.tables.get(table.id) if self.now is not None else None
        is_partial = found is not None and (found.has_row_filter or found.has_column_list)
        if not self.address.owners_publication:
            members = self.before.members if self.before is not None else frozenset()
            is_created = self.before is not None and not self.before.is_of_all_tables
            return is_partial and is_created, table.id not in members or not is_created
        return is_partial, found is None or found.member is None

    def _publish(self, table: Structure, is_partial: bool, is_missing: bool) -> None:
        name = quote(self.address.publication)
        # Its creator may alter it.
        ours = (self.before is None or self.before.is_ours) and not self.address.owners_publication
        if is_partial:
            self.plan.add(f"ALTER PUBLICATION {name} DROP TABLE {table.qualified}", "", ours)
        if is_partial or is_missing:
            statement = f"ALTER PUBLICATION {name} ADD TABLE {table.qualified}"
            self.plan.add(statement, "", ours and table.is_ours)

    def register(self) -> None:
        """Reports the registered tables, and changes of those that were registered before."""
        old = self.registration or Registration()
        gone = {
            name: Released(table.id, tuple(table.identities.items()))
            for name, table in old.tables.items()
            if name not in self.registered
        }
        for name, table in self.registered.items():
            if name not in old.tables and self.registration is not None:
                self.plan.done.append(f"table {name} is now captured")
            elif name in old.tables:
                self.plan.done += [
                    f"table {name} is captured again: {each.reason}"
                    for each in table.renewals
                    if each.since is None
                ]
        self.plan.done += [f"table {name} is no longer captured" for name in gone]
        released = {name: self._settled(each) for name, each in {**old.released, **gone}.items()}
        new = Registration(
            self.registered,
            None if self.of_all else old.publication,
            {name: each for name, each in released.items() if name not in self.registered},
            old.readable_since if self.is_known else 0,
        )
        if new != self.registration:
            self.plan.has_new_publication = not self.is_known
            self.plan.registration = new
            self.plan.fresh = tuple(table.id for table in self.fresh)
            self.plan.begun = frozenset(
                name
                for name, table in self.registered.items()
                if name not in old.tables or old.tables[name].id != table.id
            )

    def _settled(self, released: Released) -> Released:
        """A table that is not captured any more, with the replica identities that are still owed to it."""
        table = self.known.get(released.id)
        if table is None or not released.identities:
            return Released(released.id)
        left = [
            each
            for each, _ in self._owed(table)
            if not self._may_drop(table) or not (each.is_ours or self._function(each) is not None)
        ]
        return released if left else Released(released.id)
