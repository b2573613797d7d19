"""Messages: captured transactions as algorithms receive them that take them raw.

One message is what a unit of work changed at one site, for the tables of one view. They come in the order of
csn, in which each site's are in its own order and those of a global transaction follow each other. Versions
count the messages of a site from the beginning of a step, so that none is missing between two of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN, Change, Seen, Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Answer
from rollview.service.relations import Relations

_ByCsn = Mapping[int, Mapping[str, Sequence[Change]]]


@dataclass(frozen=True)
class Message:
    """A transaction of a site; `ends_unit` if no other part of its unit of work follows."""

    csn: int
    transaction: Transaction
    ends_unit: bool


class Messages:
    """The messages after a csn, read from the change logs as far as they are needed."""

    def __init__(self, relations: Relations, view: View, after: int) -> None:
        self._relations = relations
        self._view = view
        self._after = self._upto = after
        self._messages: list[Message] = []
        self._csns: defaultdict[str, list[int]] = defaultdict(list)
        self._places: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __getitem__(self, place: int) -> Message:
        return self._messages[place]

    def read(self, upto: int) -> None:
        """Reads the messages up to a csn."""
        if upto <= self._upto:
            return
        for csn, parts in sorted(self._changes(upto).items()):
            for last, (site, changes) in enumerate(sorted(parts.items()), 1 - len(parts)):
                self._add(csn, site, tuple(changes), tuple(sorted(parts)), ends_unit=last == 0)
        self._upto = upto

    def _add(
        self, csn: int, site: str, changes: tuple[Change, ...], sites: tuple[str, ...], ends_unit: bool
    ) -> None:
        self._csns[site].append(csn)
        version = len(self._csns[site])
        together = (str(csn), sites) if len(sites) > 1 else ("", ())
        transaction = Transaction(site, version, changes, 0.0, *together)
        self._messages.append(Message(csn, transaction, ends_unit))
        self._places[site, version] = len(self._messages)

    def _changes(self, upto: int) -> _ByCsn:
        """By csn and site what changed, what goes before what comes: then keys are keys in between."""
        found: defaultdict[int, defaultdict[str, list[Change]]] = defaultdict(lambda: defaultdict(list))
        for table in dict.fromkeys(self._view.tables):
            log = self._relations.changes(table, self._upto, upto, self._after).net_effect().table()
            columns = [log.column(name).to_pylist() for name in (CSN, COUNT, *table.columns)]
            for csn, count, *row in zip(*columns, strict=True):
                values = tuple(map(_hashable, row))
                found[csn][table.site].append(Change(table.qualified, values, count))
        for parts in found.values():
            for changes in parts.values():
                changes.sort(key=lambda change: change.count > 0)
        return found

    def seen(self, answer: Answer[Any]) -> Seen | None:
        """What an answer saw, in versions; None if it is not all of its site's messages up to some one."""
        csns = self._csns[answer.source]
        number = bisect_right(csns, answer.saw.upto)
        return None if answer.saw.holes.intersection(csns[:number]) else Seen(number)

    def place(self, site: str, version: int) -> int:
        """How many messages there are up to a version of a site."""
        return self._places.get((site, version), 0)

    def whole_units(self, place: int) -> int:
        """How many messages there are up to the end of the unit of work that this one belongs to."""
        while place and not self._messages[place - 1].ends_unit:
            place += 1
        return place

    def claimed(self, versions: tuple[tuple[str, int], ...] | None) -> Message | None:
        """The last message that a state shows which claims these versions; None if it is of no unit's end."""
        if versions is None:
            return None
        place = max(self.place(site, version) for site, version in versions)
        assert sum(version for _, version in versions) == place, "a state shows messages in their order"
        last = self._messages[place - 1]
        return last if last.ends_unit else None

    def units(self, after: int, upto: int) -> Iterator[int]:
        """The csn of the units of work with messages in an interval."""
        return iter({each.csn for each in self._messages if after < each.csn <= upto})


def _hashable(value: Any) -> Any:
    """A value that can be a part of a key; Arrow makes the same of it as of the value itself."""
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
