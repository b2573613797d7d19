"""The warehouse of the simulator: it interprets the effects of an algorithm's processes.

Everything here is lost in a crash; `Store` is what stays. After a crash a new warehouse is built on the
same store, the sequencer resumes from the kept history, and every source is asked to send what follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from rollview.algebra.history import Transaction
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
    HighWater,
    Install,
    Interval,
    KnownState,
    Netted,
    Newest,
    NextInterval,
    NextIntervals,
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
from rollview.algorithms.interpreter import WAIT, Running, known_state
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.made_deltas import made_delta
from rollview.lab.simulator.network import Answered, Asked, Heartbeat, Message, Resend, Update
from rollview.lab.simulator.store import Store

APART = ", apart"
"""Ends the name of forward queries that go together, but not to the same csn."""


@dataclass(slots=True)
class Costs:
    """Counts of one run, or of several together.

    A question is a sub-query sent to a source; questions sent at once are one round; an execution is one
    query over the view's relations, however many questions it takes.
    """

    questions: int = 0
    rounds: int = 0
    rows_shipped: int = 0
    rows_compensated: int = 0
    executions: int = 0

    def add(self, other: Costs) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True, eq=False)
class ViewProcess(Running):
    """A process of a view, with the name of its forward query, if any, and what it has asked."""

    view: str = ""
    name: str = ""
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
        self._running: list[ViewProcess] = []
        self._forward: dict[str, ViewProcess] = {}
        self._ready: list[tuple[str, int, int]] | None = None
        self._handlers = self._make_handlers()
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
            if type(running.waits_on) in (NextInterval, NextIntervals)
            and (position := self._position(name, running.waits_on)) < newest
            and not self._is_said_otherwise(name, running.waits_on, newest)
        ]

    def _is_said_otherwise(self, name: str, effect: NextInterval | NextIntervals, newest: int) -> bool:
        """Whether several are named, and what they could do together is what one of them can do alone."""
        if isinstance(effect, NextInterval) or len(named := self._named(name, effect)) == 1:
            return False
        behind = [self._store.positions[query] for query in named if self._store.positions[query] < newest]
        return len(behind) < 2 or (name.endswith(APART) and newest - min(behind) < 2)

    def _position(self, name: str, effect: NextInterval | NextIntervals) -> int:
        if isinstance(effect, NextInterval):
            return self._beginning(effect)
        return min(self._store.positions[query] for query in self._named(name, effect))

    def _beginning(self, effect: NextInterval) -> int:
        return self._store.positions[effect.query] if effect.after is None else effect.after

    def _named(self, name: str, effect: NextIntervals) -> list[ForwardQuery]:
        """The forward queries of a name: one, or all of them."""
        return [query for query in effect.queries if self._name(query) == name] or list(effect.queries)

    def begin_interval(self, name: str, upto: int) -> None:
        """Lets a forward query, or several together, begin with the transactions up to a csn."""
        running, positions = self._forward[name], self._store.positions
        if isinstance(running.waits_on, NextInterval):
            self._advance(running, Interval(self._beginning(running.waits_on), upto))
            return
        intervals = {each: Interval(positions[each], positions[each]) for each in running.waits_on.queries}
        behind = [query for query in self._named(name, running.waits_on) if positions[query] < upto]
        for number, query in enumerate(behind):
            # If all go together, but not one by one, they do not all come to the same csn.
            reach = upto - number if name.endswith(APART) else upto
            intervals[query] = Interval(positions[query], max(positions[query], reach))
        self._advance(running, intervals)

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
                if seen is not WAIT:
                    self._advance(running, seen)
        self._skip_untouched()

    def _skip_untouched(self) -> None:
        """A relation without changes has an empty delta: its position follows without a query."""
        waiting = {id(running): running.waits_on for running in self._forward.values()}
        queries = [
            query
            for effect in waiting.values()
            for query in (effect.queries if type(effect) is NextIntervals else self._alone(effect))
        ]
        untouched = [query for query in queries if self._is_untouched(query)]
        if untouched:
            self._ready = None
            self._store.skip(untouched, self._store.history.last_csn)
            self._store.apply()

    def _alone(self, effect: Any) -> tuple[ForwardQuery, ...]:
        """The forward query that waits for its next interval, where that begins at its position."""
        return (effect.query,) if type(effect) is NextInterval and effect.after is None else ()

    def _is_untouched(self, query: ForwardQuery) -> bool:
        history, position = self._store.history, self._store.positions[query]
        if position == history.last_csn:
            return False
        return not any(history.touched(table, position, history.last_csn) for table in self._tables[query])

    def _begin(self, process: Process, view: str) -> None:
        running = ViewProcess(process, view=view)
        self._running.append(running)
        self._advance(running, None)

    def _advance(self, running: ViewProcess, value: Any) -> None:
        """Sends a result in and serves effects until one has to wait."""
        self._ready = None
        if not running.advance(value, self._serve):
            self._running.remove(running)

    def _serve(self, running: ViewProcess, effect: Any) -> Any:
        return self._handlers[type(effect)](running, effect)

    def _make_handlers(self) -> dict[type, Callable[[ViewProcess, Any], Any]]:
        """For every effect what serves it; the result is `WAIT` if there is none yet."""
        store, costs = self._store, self._costs
        history = store.history

        def publish(_: ViewProcess, effect: Publish[MemoryBag]) -> None:
            store.publish(effect.moves, effect.delta, effect.control, effect.as_one)
            store.apply()

        def execute(_: ViewProcess, effect: Execute) -> int:
            costs.executions += 1
            return history.last_csn if effect.at is None else effect.at

        def install(_: ViewProcess, effect: Install[MemoryBag]) -> None:
            store.install(effect.view, effect.state, dict(effect.versions) if effect.versions else None)

        def state_with(effect: StateWith[MemoryBag], state: MemoryBag) -> MemoryBag:
            return state if effect.keys is None else state.sharing(effect.keys, effect.keys.columns)

        def compensated(_: ViewProcess, effect: Compensated[MemoryBag]) -> None:
            costs.rows_compensated += len(effect.rows.counts)

        return {
            Answerable: lambda _, effect: self._known_state(effect),
            Ask: self._ask,
            Await: lambda _, effect: self._seen_by(effect),
            Changes: lambda _, effect: history.changes(effect.table, effect.after, effect.upto),
            Compensated: compensated,
            Execute: execute,
            HighWater: lambda _, effect: store.known(effect.view),
            Newest: lambda *_: history.last_csn,
            Install: install,
            NextInterval: self._next_interval,
            NextIntervals: self._next_intervals,
            Pause: lambda *_: WAIT,
            Publish: publish,
            Recall: lambda _, effect: store.controls.get(effect.view),
            Receive: lambda running, _: inbox.popleft() if (inbox := self._inboxes[running.view]) else WAIT,
            RowsOf: lambda _, effect: MemoryBag.of_pairs(effect.columns, effect.rows),
            SendAgain: lambda _, effect: self._send(effect.source, Resend(effect.first, effect.last)),
            SourceDelta: lambda _, effect: made_delta(store, effect),
            Spared: lambda *_: None,
            Netted: lambda *_: None,
            Doubted: lambda *_: None,
            Spawn: lambda running, effect: self._begin(effect.process, running.view),
            StateWith: lambda _, effect: state_with(effect, store.state_at(effect.view, effect.csn)),
            Stored: lambda _, effect: store.states[effect.view],
            Values: lambda _, effect: frozenset(effect.rows.distinct(effect.columns).counts),
        }

    def _next_interval(self, running: ViewProcess, effect: NextInterval) -> Any:
        name = self._name(effect.query)
        if running.name != name:
            self._forward.pop(running.name, None)
            running.name = name
        self._forward[name] = running
        self._skip_untouched()
        return WAIT

    def _next_intervals(self, running: ViewProcess, effect: NextIntervals) -> Any:
        """All of them together by the name of the block, and each by its own."""
        whole = self._name(effect.queries[0]._replace(relation=None))
        names = [whole, *(self._name(query) for query in effect.queries)]
        if len(effect.queries) == 1:
            names = names[1:]
        else:
            names.append(f"{whole}{APART}")
        self._forward.update(dict.fromkeys(names, running))
        self._skip_untouched()
        return WAIT

    def _known_state(self, effect: Answerable[MemoryBag]) -> KnownState | None:
        """The csn of a state of the view that is as good as the one before the step; None if none is."""
        return known_state(effect, self._store.known(effect.view), self._store.history.touched)

    def _name(self, query: ForwardQuery) -> str:
        block = f"[{query.block}]" if query.block > 0 else ""
        if query.relation is None:
            return f"{query.view}{block}"
        relation = self._store.views[query.view].blocks[query.block].relations[query.relation]
        return f"{query.view}{block}.{relation.alias}"

    def _tables_of(self, query: ForwardQuery) -> tuple[str, ...]:
        chosen = query.relations(self._store.views[query.view])
        return tuple(relation.table.qualified for relation in chosen)

    def _ask(self, running: ViewProcess, effect: Ask[MemoryBag]) -> Any:
        running.answers = [None] * len(effect.questions)
        self._costs.rounds += 1
        for position, question in enumerate(effect.questions):
            number = next(self._numbers)
            running.questions[number] = (position, question)
            self._costs.questions += 1
            self._send(question.sub_query.source, Asked(number, question))
        return WAIT

    def _seen_by(self, effect: Await[MemoryBag]) -> Any:
        history = self._store.history
        if all(history.knows(answer.source, answer.saw) for answer in effect.answers):
            return tuple(history.in_csn(answer.source, answer.saw) for answer in effect.answers)
        return WAIT
