"""A step of an algorithm that takes messages raw: captured transactions and live answers, in one order.

The papers assume a network on which a source's updates and answers arrive in the order in which they were
sent. So an answer is handed over behind every message that it saw and before any of its site that it did not
see; one that did not see a prefix of them is asked for again. A state that the algorithm installs is shown at
the csn that it claims; states inside a unit of work, and those that claim nothing, are not. States are handed
out before the next question is asked, so that they are kept if the step ends early.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Literal
from rollview.algebra.history import CSN, Change, Seen, Transaction
from rollview.algebra.relation import Relation
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Answer,
    Ask,
    Compensated,
    Execute,
    Install,
    Interval,
    Pause,
    Process,
    Publish,
    Question,
    Recall,
    Receive,
    RowsOf,
    SendAgain,
    Spawn,
    Stored,
)
from rollview.algorithms.interpreter import WAIT, Running
from rollview.bags import PlacedBag
from rollview.errors import CaptureStalled, NeverAtRest, RollviewError
from rollview.maintain.relations import PATIENCE_SECONDS, Relations
from rollview.rows import arrow_schema
from rollview.runtime.progress import StepTimer
from rollview.runtime.session import Session
from rollview.views.properties import algorithm_of

# Messages: captured transactions as algorithms receive them that take them raw.
#
# One message is what a unit of work changed at one site, for the tables of one view. They come in the order
# of csn, in which each site's are in its own order and those of a global transaction follow each other.
# Versions count the messages of a site from the beginning of a step, so that none is missing between two of
# them.


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
        """The version that an answer saw; None if it is not all of its site's messages up to some one.

        All transactions before the first message are in the view that the step begins with.
        """
        csns, saw = self._csns[answer.source], answer.saw
        number = bisect_right(csns, saw.upto)
        lacks_earlier = saw.upto < self._after or any(hole <= self._after for hole in saw.holes)
        return None if lacks_earlier or saw.holes.intersection(csns[:number]) else Seen(number)

    def upto(self, csn: int) -> int:
        """How many messages there are up to a csn."""
        return bisect_right(self._messages, csn, key=lambda each: each.csn)

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

    def units(self, after: int, upto: int) -> set[int]:
        """The csn of the units of work with messages in an interval."""
        return {each.csn for each in self._messages if after < each.csn <= upto}


def _types_of(relation: Relation) -> dict[str, str]:
    return dict(zip(relation.columns, relation.table.types, strict=True))


def _hashable(value: Any) -> Any:
    """A value that can be a part of a key; Arrow makes the same of it as of the value itself."""
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


REST_SECONDS = 60.0
"""How long an algorithm that needs rest may look up rows and only find more transactions, without a state."""

_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Reached:
    """States that a step has reached since it last handed some out, and their costs."""

    interval: Interval
    published: tuple[Publish[PlacedBag], ...]
    timer: StepTimer


class RawStep:
    """Runs the processes of a view through the messages of an interval, and more where answers saw more."""

    def __init__(self, relations: Relations, session: Session, view: View, interval: Interval) -> None:
        self._relations = relations
        self._session = session
        self._view = view
        self._interval = interval
        self._timer = StepTimer()
        self._messages = Messages(relations, view, interval.after)
        self._delivered = 0
        self._taken: Counter[str] = Counter()
        self._running: list[Running] = []
        self._asking: deque[Running] = deque()
        self._state = relations.stored.open(view.name).state_at(interval.after).materialized()
        self._shown = [(interval.after, self._state)]
        self._without_rest = 0.0

    def run(self) -> Generator[Reached]:
        """The states that the step reaches, as soon as it reaches them. It may be closed at any time."""
        with self._timer.phase("read_changes"):
            self._messages.read(self._interval.upto)
        due = len(self._messages)
        try:
            for process in algorithm_of(self._view).processes(self._view):
                self._begin(process)
            while self._last < self._interval.upto:
                if self._delivered < due:
                    self._deliver()
                elif self._asking:
                    yield from self._hand_out()
                    self._answer()
                    self._check_rest()
                else:
                    self._show(max(self._interval.upto, self._reached))
            yield from self._hand_out()
        finally:
            for running in self._running:
                running.process.close()

    @property
    def _last(self) -> int:
        """The csn of the last state that is shown."""
        return self._shown[-1][0]

    @property
    def _reached(self) -> int:
        """The csn of the last message that was handed over."""
        return self._messages[self._delivered - 1].csn if self._delivered else 0

    def _show(self, csn: int) -> None:
        if csn > self._last:
            self._shown.append((csn, self._state))
            self._without_rest = 0.0

    def _hand_out(self) -> Iterator[Reached]:
        """The states that are shown and were not handed out yet."""
        if len(self._shown) == 1:
            return
        interval = Interval(self._shown[0][0], self._last)
        published = tuple(self._published())
        timer, self._timer, self._shown = self._timer, StepTimer(), self._shown[-1:]
        yield Reached(interval, published, timer)

    def _published(self) -> Iterator[Publish[PlacedBag]]:
        """The differences of states that follow each other.

        A state may be shown at a csn at which its tables did not change; the view changed where they did.
        """
        (query,) = algorithm_of(self._view).positions(self._view)
        for (after, before), (csn, state) in zip(self._shown, self._shown[1:], strict=False):
            units = self._messages.units(after, csn)
            changed_at = max(units, default=csn)
            with self._timer.phase("compute"):
                changed = state.plus(before.negate()).net_effect()
                delta = changed.project((*keep(state.columns), (CSN, Literal(changed_at))))
            as_one = Interval(after, changed_at) if len(units) > 1 else None
            yield Publish(((query, csn),), delta, as_one=as_one)

    def _check_rest(self) -> None:
        """Ends a step that has shown nothing for long, where the algorithm may never show anything again."""
        algorithm = algorithm_of(self._view)
        if not algorithm.needs_rest or self._without_rest <= REST_SECONDS:
            return
        name, more = self._view.name, self._delivered - self._messages.upto(self._interval.upto)
        raise NeverAtRest(
            f"view {name}: {algorithm.name} has shown no state for {REST_SECONDS:.0f} s, as it waits until no"
            f" query is open; {more} further transactions arrived meanwhile",
            subject=name,
            hint="c-strobe and version-numbers need no such moment; or leave rollview.algorithm out",
        )

    def _begin(self, process: Process) -> None:
        running = Running(process)
        self._running.append(running)
        self._advance(running, None)

    def _deliver(self) -> None:
        """Hands the next message over."""
        message = self._messages[self._delivered]
        self._delivered += 1
        self._taken[message.transaction.source] += 1
        waiting = next((each for each in self._running if isinstance(each.waits_on, Receive)), None)
        assert waiting is not None, "an algorithm takes messages in also while it waits for answers"
        self._advance(waiting, message.transaction)

    def _answer(self) -> None:
        """Hands the answers to all questions over, each behind the messages that it saw and no further."""
        waiting, self._asking = self._asking, deque()
        known, shown, began = len(self._messages), self._last, time.monotonic()
        answers = iter(self._ask([question for each in waiting for question in each.waits_on.questions]))
        found = [(each, tuple(islice(answers, len(each.waits_on.questions)))) for each in waiting]
        for running, own in sorted(found, key=lambda each: self._seen_messages(each[1])):
            while self._delivered < self._messages.whole_units(self._seen_messages(own)):
                self._deliver()
            self._advance(running, own)
        # Where nothing more arrives, it comes to rest, however slow the machine is.
        if len(self._messages) > known and self._last == shown:
            self._without_rest += time.monotonic() - began

    def _seen_messages(self, answers: tuple[Answer[PlacedBag], ...]) -> int:
        """How many messages there are up to the last one that any of these saw."""
        return max(self._messages.place(each.source, each.saw.upto) for each in answers)

    def _ask(self, questions: list[Question[PlacedBag]]) -> list[Answer[PlacedBag]]:
        """Answers each of which saw a prefix of its site's messages, with all that were handed over."""
        found: dict[int, Answer[PlacedBag]] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            places = [place for place in range(len(questions)) if place not in found]
            with self._timer.phase("lookups"):
                chosen = [questions[each] for each in places]
                answers = self._relations.lookup(chosen, self._interval.after, self._timer)
            with self._timer.phase("read_changes"):
                self._messages.read(max(answer.saw.upto for answer in answers))
            for place, answer in zip(places, answers, strict=True):
                saw = self._messages.seen(answer)
                if saw is not None and saw.upto >= self._taken[answer.source]:
                    found[place] = replace(answer, saw=saw)
            if len(found) == len(questions):
                return [found[place] for place in range(len(questions))]
            if time.monotonic() > deadline:
                message = f"for {PATIENCE_SECONDS:.0f} s no answer saw a prefix of its site's transactions"
                raise CaptureStalled(message, subject=self._view.name, hint="leave rollview.algorithm out")
            time.sleep(_PAUSE_SECONDS)

    def _advance(self, running: Running, value: Any) -> None:
        """Sends a result in and serves effects until one has to wait."""

        def send(result: Any) -> Any:
            with self._timer.phase("compute"):
                return running.process.send(result)

        if not running.advance(value, self._serve, send):
            self._running.remove(running)

    def _serve(self, running: Running, effect: Any) -> Any:
        match effect:
            case Receive() | Pause():
                return WAIT
            case Ask():
                self._asking.append(running)
                return WAIT
            case Spawn(process=process):
                return self._begin(process)
            case Stored():
                return self._state
            case Install(state=state, versions=versions):
                with self._timer.phase("compute"):
                    self._state = state.materialized()
                if (last := self._messages.claimed(versions)) is not None:
                    self._show(last.csn)
                return None
            case RowsOf(columns=columns, rows=rows, relation=relation):
                assert relation is not None or not rows, "the rows of messages are of some relation"
                # Where there are none, they take the types of whatever they are added to.
                types = {} if relation is None else _types_of(relation)
                return self._rows_of({name: types.get(name, "void") for name in columns}, rows)
            case Execute() | Compensated() | Recall() | SendAgain():
                # Nothing is lost, and a step begins with what is stored.
                return None
        raise RollviewError(f"{algorithm_of(self._view).name} asks for {type(effect).__name__}")

    def _rows_of(self, types: dict[str, str], rows: tuple[tuple[tuple[Any, ...], int], ...]) -> PlacedBag:
        schema = arrow_schema([*types.items(), (COUNT, "bigint")])
        columns = zip(*((*row, count) for row, count in rows), strict=True) if rows else ([],) * len(schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return PlacedBag.of_rows(self._session.spark, pa.table(arrays, schema=schema))
