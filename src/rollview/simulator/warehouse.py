"""The warehouse of the simulator: it interprets the effects of an algorithm's processes.

Everything here is lost in a crash; `Store` is what stays. After a crash a new warehouse is built on the
same store, the sequencer resumes from the kept history, and every source is asked to send what follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import MemoryBag
from rollview.algebra.history import CSN, Transaction
from rollview.algebra.sequencer import Gap, Sequencer
from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.effects import (
    Answer,
    Answerable,
    Ask,
    Await,
    Changes,
    Compensated,
    Doubted,
    Execute,
    ForwardQuery,
    Install,
    Interval,
    Netted,
    Newest,
    NextInterval,
    Pause,
    Process,
    Publish,
    Question,
    Recall,
    Receive,
    RowsOf,
    SendAgain,
    SourceDelta,
    Spared,
    Spawn,
    StateWith,
    Stored,
    Values,
)
from rollview.simulator.costs import Costs
from rollview.simulator.made_deltas import made_delta
from rollview.simulator.network import Answered, Asked, Heartbeat, Message, Resend, Update
from rollview.simulator.store import Store


@dataclass(slots=True, eq=False)
class Running:
    """A process of a view, the effect it is suspended on, and the name of its forward query, if any."""

    process: Process
    view: str
    name: str = ""
    waits_on: Any = None
    questions: dict[int, tuple[int, Question[MemoryBag]]] = field(default_factory=dict)
    answers: list[Answer[MemoryBag] | None] = field(default_factory=list)


class SimulatedWarehouse:
    """Runs the processes of one algorithm for all views."""

    def __init__(
        self,
        store: Store,
        algorithm: Algorithm,
        send: Callable[[str, Message], None],
        numbers: Iterator[int],
        costs: Costs,
    ) -> None:
        self._store = store
        self._algorithm = algorithm
        self._send = send
        self._numbers = numbers
        self._costs = costs
        self._sequencer = Sequencer.resume(store.sources, store.history.units)
        self._inboxes: dict[str, deque[Transaction]] = {view: deque() for view in store.views}
        self._running: list[Running] = []
        self._forward: dict[str, Running] = {}
        self._ready: list[tuple[str, int, int]] | None = None
        self._serve = self._handlers()
        self._tables = {query: self._tables_of(query) for query in store.positions}

    def start(self) -> None:
        """Starts all processes from what the store holds."""
        self._store.apply()
        for view in self._store.views.values():
            for process in self._algorithm.processes(view):
                self._begin(process, view.name)

    def reconnect(self) -> None:
        """Asks every source for what follows the kept history."""
        for source in self._store.sources:
            self._send(source, Resend(self._sequencer.position(source) + 1, None))

    def receive(self, message: Message, now: float) -> None:
        """Takes a message in and lets every process go as far as it can."""
        if isinstance(message, Update):
            self._receive_update(message.transaction, now)
        elif isinstance(message, Answered):
            self._receive_answer(message)
        elif isinstance(message, Heartbeat):
            self._sequencer.heard_of(message.source, message.version)

    def ready(self) -> list[tuple[str, int, int]]:
        """Forward queries that could begin an interval: name, position, and the newest csn."""
        if self._ready is None:
            self._ready = self._find_ready()
        return self._ready

    def _find_ready(self) -> list[tuple[str, int, int]]:
        newest = self._store.history.last_csn
        return [
            (name, position, newest)
            for name, running in self._forward.items()
            if type(running.waits_on) is NextInterval
            and (position := self._beginning(running.waits_on)) < newest
        ]

    def _beginning(self, effect: NextInterval) -> int:
        return self._store.positions[effect.query] if effect.after is None else effect.after

    def begin_interval(self, name: str, upto: int) -> None:
        """Lets a forward query begin with the transactions up to a csn."""
        running = self._forward[name]
        self._advance(running, Interval(self._beginning(running.waits_on), upto))

    def is_waiting(self) -> bool:
        """Whether something was asked for that has not come."""
        return any(running.questions for running in self._running) or bool(self._gaps())

    def retry(self) -> None:
        """Asks again for everything that is outstanding."""
        for gap in self._gaps():
            self._send(gap.source, Resend(gap.first, gap.last))
        for running in self._running:
            for number, (_, question) in running.questions.items():
                self._send(question.sub_query.source, Asked(number, question))
        for running in [running for running in self._running if type(running.waits_on) is Pause]:
            self._advance(running, None)

    def is_pausing(self) -> bool:
        """Whether a process looks after lost messages itself, whenever time has passed."""
        return any(type(running.waits_on) is Pause for running in self._running)

    def _gaps(self) -> list[Gap]:
        return self._sequencer.gaps() if self._algorithm.sequenced else []

    def _receive_update(self, transaction: Transaction, now: float) -> None:
        if not self._algorithm.sequenced:
            for inbox in self._inboxes.values():
                inbox.append(transaction)
            for running in list(self._running):
                if type(running.waits_on) is Receive and self._inboxes[running.view]:
                    self._advance(running, self._inboxes[running.view].popleft())
            return
        units = self._sequencer.receive(transaction, now)
        for unit in units:
            self._store.append(unit)
        if units:
            self._ready = None
            self._wake()

    def _receive_answer(self, message: Answered) -> None:
        running = next((running for running in self._running if message.number in running.questions), None)
        if running is None:
            return  # Answered before, or asked before a crash.
        position, _ = running.questions.pop(message.number)
        answer = message.answer
        running.answers[position] = answer
        self._costs.rows_shipped += sum(len(rows.counts) for rows in answer.rows)
        self._sequencer.heard_of(answer.source, answer.saw.upto)
        if not running.questions:
            self._advance(running, tuple(running.answers))

    def _wake(self) -> None:
        """The history has grown: answers may be complete now, and idle relations have nothing to ask."""
        for running in list(self._running):
            effect = running.waits_on
            if type(effect) is Await:
                seen = self._seen_by(effect)
                if seen is not _WAIT:
                    self._advance(running, seen)
        self._skip_untouched()

    def _skip_untouched(self) -> None:
        """A relation without changes has an empty delta: its position follows without a query."""
        untouched = [
            running.waits_on.query
            for running in self._forward.values()
            if type(running.waits_on) is NextInterval and self._is_untouched(running.waits_on)
        ]
        if untouched:
            self._ready = None
            self._store.skip(untouched, self._store.history.last_csn)
            self._store.apply()

    def _is_untouched(self, effect: NextInterval) -> bool:
        history, position = self._store.history, self._store.positions[effect.query]
        if effect.after is not None or position == history.last_csn:
            return False
        return not any(
            history.touched(table, position, history.last_csn) for table in self._tables[effect.query]
        )

    def _begin(self, process: Process, view: str) -> None:
        running = Running(process, view)
        self._running.append(running)
        self._advance(running, None)

    def _advance(self, running: Running, value: Any) -> None:
        """Sends a result in and serves effects until one has to wait."""
        self._ready = None
        while True:
            try:
                effect = running.process.send(value)
            except StopIteration:
                self._running.remove(running)
                return
            running.waits_on = effect
            value = self._serve[type(effect)](running, effect)
            if value is _WAIT:
                return

    def _handlers(self) -> dict[type, Callable[[Running, Any], Any]]:
        """For every effect what serves it; the result is `_WAIT` if there is none yet."""
        store, costs = self._store, self._costs
        history = store.history

        def publish(_: Running, effect: Publish[MemoryBag]) -> None:
            store.publish(effect.moves, effect.delta, effect.control, effect.as_one)
            store.apply()

        def execute(_: Running, effect: Execute) -> int:
            costs.executions += 1
            return history.last_csn if effect.at is None else effect.at

        def install(_: Running, effect: Install[MemoryBag]) -> None:
            store.install(effect.view, effect.state, dict(effect.versions) if effect.versions else None)

        def compensated(_: Running, effect: Compensated[MemoryBag]) -> None:
            costs.rows_compensated += len(effect.rows.counts)

        return {
            Answerable: lambda _, effect: self._known_state(effect),
            Ask: self._ask,
            Await: lambda _, effect: self._seen_by(effect),
            Changes: lambda _, effect: history.changes(effect.table, effect.after, effect.upto),
            Compensated: compensated,
            Execute: execute,
            Newest: lambda *_: history.last_csn,
            Install: install,
            NextInterval: self._next_interval,
            Pause: lambda *_: _WAIT,
            Publish: publish,
            Recall: lambda _, effect: store.controls.get(effect.view),
            Receive: lambda running, _: inbox.popleft() if (inbox := self._inboxes[running.view]) else _WAIT,
            RowsOf: lambda _, effect: MemoryBag.of_pairs(effect.columns, effect.rows),
            SendAgain: lambda _, effect: self._send(effect.source, Resend(effect.first, effect.last)),
            SourceDelta: lambda _, effect: made_delta(store, effect),
            Spared: lambda *_: None,
            Netted: lambda *_: None,
            Doubted: lambda *_: None,
            Spawn: lambda running, effect: self._begin(effect.process, running.view),
            StateWith: lambda _, effect: store.state_at(effect.view, effect.csn).sharing(
                effect.keys, effect.keys.columns
            ),
            Stored: lambda _, effect: store.states[effect.view],
            Values: lambda _, effect: frozenset(effect.rows.distinct(effect.columns).counts),
        }

    def _next_interval(self, running: Running, effect: NextInterval) -> Any:
        name = self._name(effect.query)
        if running.name != name:
            self._forward.pop(running.name, None)
            running.name = name
        self._forward[name] = running
        self._skip_untouched()
        return _WAIT

    def _known_state(self, effect: Answerable[MemoryBag]) -> int | None:
        """The csn of a state of the view that is as good as the one before the interval; None if none is."""
        history, interval = self._store.history, effect.interval
        known = self._store.known(effect.view)
        last = max(csn for (csn,) in effect.rows.distinct((CSN,)).counts)
        changed = history.touched(effect.table, known, interval.after) or any(
            history.touched(table, known, last) for table in effect.others
        )
        return None if changed else known

    def _name(self, query: ForwardQuery) -> str:
        block = f"[{query.block}]" if query.block > 0 else ""
        if query.relation is None:
            return f"{query.view}{block}"
        relation = self._store.views[query.view].blocks[query.block].relations[query.relation]
        return f"{query.view}{block}.{relation.alias}"

    def _tables_of(self, query: ForwardQuery) -> tuple[str, ...]:
        chosen = query.relations(self._store.views[query.view])
        return tuple(relation.table.qualified for relation in chosen)

    def _ask(self, running: Running, effect: Ask[MemoryBag]) -> Any:
        running.answers = [None] * len(effect.questions)
        self._costs.rounds += 1
        for position, question in enumerate(effect.questions):
            number = next(self._numbers)
            running.questions[number] = (position, question)
            self._costs.questions += 1
            self._send(question.sub_query.source, Asked(number, question))
        return _WAIT

    def _seen_by(self, effect: Await[MemoryBag]) -> Any:
        history = self._store.history
        if all(history.knows(answer.source, answer.saw) for answer in effect.answers):
            return tuple(history.in_csn(answer.source, answer.saw) for answer in effect.answers)
        return _WAIT


_WAIT = object()
"""The effect has no result yet."""
