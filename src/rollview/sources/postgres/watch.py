"""Compares the source with what is registered of it, as often as something is read from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rollview.errors import SourceChanged, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.damage import Damage, damage, damage_of_all
from rollview.sources.postgres.fingerprint import Fingerprint, glance, look
from rollview.sources.postgres.partitions import links_of
from rollview.sources.postgres.position import Partitions
from rollview.sources.postgres.registration import Registered, Registration, decode, registration_id
from rollview.sources.postgres.slot import not_set_up
from rollview.sources.reload_hint import reload_hint, setup_hint

_MOST_SEEN = 100


@dataclass(frozen=True)
class Observation:
    """What is registered, how it is now, and by name the tables that are damaged."""

    registration: Registration
    fingerprint: Fingerprint
    damaged: Mapping[str, Damage]

    @property
    def partitions(self) -> Partitions:
        """Those of all partitioned tables."""
        return {
            table.id: links_of(self.fingerprint.tables[table.id].partitions)
            for table in self.registration.tables.values()
            if table.is_partitioned and table.id in self.fingerprint.tables
        }


class Watch:
    """Remembers what it has seen, so that one short query is enough unless something has changed.

    Several threads may use it.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known = Registration()
        self._seen: dict[frozenset[str] | None, tuple[str, Observation]] = {}

    def observe(self, connection: Connection, names: Collection[str] | None = None) -> Observation:
        """The source as it is now, as far as these tables are concerned; all, unless they are named.

        Refuses where setup has not been, and where nobody can tell what it has registered.
        """
        key = frozenset(names) if names is not None else None
        while True:
            known = self._known
            wanted = [each for each in known.tables.values() if names is None or each.name in names]
            digest = glance(connection, self._address, wanted)
            before = self._seen.get(key)
            if before is not None and before[0] == digest and before[1].registration is known:
                return before[1]
            fingerprint = look(connection, self._address, wanted)
            if fingerprint is None:
                raise not_set_up(self._address)
            registration = decode(fingerprint.comment)
            if registration is None:
                raise self._unknown()
            if registration != known:
                self._known = registration
                continue
            observed = Observation(known, fingerprint, self._damaged(known, fingerprint, wanted))
            if glance(connection, self._address, wanted) == digest:
                if len(self._seen) >= _MOST_SEEN:
                    self._seen = {}
                self._seen[key] = digest, observed
            return observed

    def registered(self, connection: Connection, names: Collection[str]) -> Mapping[str, Registered]:
        """The captured tables as they were last seen, looked at again if one of these is not among them."""
        if not self._known.tables.keys() >= set(names):
            return self.observe(connection, names).registration.tables
        return self._known.tables

    def expect_intact(
        self, connection: Connection, wanted: Mapping[str, Collection[str]] | None = None
    ) -> Mapping[str, Registered]:
        """The captured tables, of which these columns are as they were at setup, and may be read as a whole.

        All tables and columns, unless they are named.
        """
        observed = self.observe(connection, None if wanted is None else wanted.keys())
        source = self._address.source
        for name, damaged in observed.damaged.items():
            place = f"{source}.{name}"
            if wanted is None or not damaged.columns or not set(damaged.columns).isdisjoint(wanted[name]):
                raise SourceChanged(damaged.reason, subject=place, hint=setup_hint(place))
        for name, registered in observed.registration.tables.items():
            table = observed.fingerprint.tables.get(registered.id)
            if table is not None and table.is_secured:
                raise SourceFailed(
                    f"row security hides rows of table {source}.{name} from us",
                    subject=f"{source}.{name}",
                    hint="its owner can switch it off, or give our role BYPASSRLS",
                )
        return observed.registration.tables

    def _damaged(
        self, known: Registration, fingerprint: Fingerprint, tables: Collection[Registered]
    ) -> dict[str, Damage]:
        if of_all := damage_of_all(known, fingerprint, self._address.publication):
            return {table.name: Damage(of_all) for table in tables}
        source = self._address.source
        found = {table.name: damage(table, fingerprint, f"{source}.{table.name}") for table in tables}
        return {name: each for name, each in found.items() if each is not None}

    def _unknown(self) -> SourceChanged:
        return SourceChanged(
            f"source {self._address.source}: the comment on large object {registration_id(self._address)},"
            " which says what is captured, is not the one that `rollview setup` wrote",
            subject=self._address.source,
            hint=reload_hint(self._address.source),
        )
