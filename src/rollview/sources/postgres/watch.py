"""Compares the source with what is registered of it, as often as something is read from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rollview.errors import SourceChanged, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.damage import damage, damage_of_all
from rollview.sources.postgres.fingerprint import Fingerprint, look
from rollview.sources.postgres.registration import Registered, Registration, decode
from rollview.sources.postgres.slot import not_set_up
from rollview.sources.reload_hint import reload_hint, setup_hint


@dataclass(frozen=True)
class Observation:
    """What is registered, how it is now, and by name the tables that are damaged, each with the reason."""

    registration: Registration
    fingerprint: Fingerprint
    damaged: Mapping[str, str]


class Watch:
    """Remembers what is registered, so that one query is enough unless that has changed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known = Registration()

    def observe(self, connection: Connection, names: Collection[str] | None = None) -> Observation:
        """The source as it is now, as far as these tables are concerned; all, unless they are named.

        Refuses where setup has not been, and where nobody can tell what it has registered.
        """
        while True:
            known = self._known
            wanted = [each for each in known.tables.values() if names is None or each.name in names]
            fingerprint = look(connection, self._address, wanted)
            if fingerprint is None:
                raise not_set_up(self._address)
            registration = decode(fingerprint.comment)
            if registration is None:
                raise self._unknown()
            if registration == known:
                return Observation(known, fingerprint, self._damaged(known, fingerprint, wanted))
            self._known = registration

    def expect_intact(
        self, connection: Connection, names: Collection[str] | None = None
    ) -> Mapping[str, Registered]:
        """The captured tables, of which these are as they were at setup, and may be read as a whole."""
        observed = self.observe(connection, names)
        source = self._address.source
        for name, reason in observed.damaged.items():
            place = f"{source}.{name}"
            raise SourceChanged(reason, subject=place, hint=setup_hint(place))
        for table in observed.fingerprint.tables.values():
            if table.is_secured:
                raise SourceFailed(
                    f"row security hides rows of table {source}.{table.name} from us",
                    subject=f"{source}.{table.name}",
                    hint="its owner can switch it off, or give our role BYPASSRLS",
                )
        return observed.registration.tables

    def _damaged(
        self, known: Registration, fingerprint: Fingerprint, tables: Collection[Registered]
    ) -> dict[str, str]:
        of_all = damage_of_all(known, fingerprint, self._address.slot)
        places = {table.name: f"{self._address.source}.{table.name}" for table in tables}
        found = {table.name: of_all or damage(table, fingerprint, places[table.name]) for table in tables}
        return {name: reason for name, reason in found.items() if reason}

    def _unknown(self) -> SourceChanged:
        return SourceChanged(
            f"source {self._address.source}: the comment on publication {self._address.slot}, which says what"
            " is captured, is not the one that `rollview setup` wrote",
            subject=self._address.source,
            hint=reload_hint(self._address.source),
        )
