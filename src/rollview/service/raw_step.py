"""A step of an algorithm that takes messages raw: captured transactions and live answers, in one order.

The papers assume a network on which a source's updates and answers arrive in the order in which they were
sent. So an answer is handed over only when every message that it saw has been, and one that did not see a
prefix of its site's messages is asked for again. A state that the algorithm installs is shown at the csn
that it claims; states inside a unit of work, and those that claim nothing, are not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Literal
from rollview.algebra.history import CSN
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
from rollview.errors import CaptureStalled, NeverAtRest, RollviewError
from rollview.rows import arrow_schema
from rollview.service.definitions import algorithm_of
from rollview.service.messages import Messages
from rollview.service.relations import Relations
from rollview.service.session import Session
from rollview.service.step_timer import StepTimer
from rollview.spark import SparkBag

REST_SECONDS = 60.0
"""How long an algorithm may look for a state that it can show, once answers see more than the step has."""

_LOOKS = 20
_PAUSE_SECONDS = 0.02


@dataclass(eq=False)
class _Running:
    """A process, and what it waits for."""

    process: Process
    waits_on: Any = None


class RawStep:
    """Runs the processes of a view through the messages of an interval, and more where answers saw more."""

    def __init__(
        self, relations: Relations, session: Session, view: View, interval: Interval, timer: StepTimer
    ) -> None:
        self._relations = relations
        self._session = session
        self._view = view
        self._interval = interval
        self._timer = timer
        self._messages = Messages(relations, view, interval.after)
        self._delivered = 0
        self._running: list[_Running] = []
        self._asking: deque[_Running] = deque()
        self._state = relations.stored.open(view.name).state_at(interval.after).materialized()
        self._shown = [(interval.after, self._state)]

    def run(self) -> list[Publish[SparkBag]]:
        """What the step publishes: one state after another."""
        with self._timer.phase("read_changes"):
            self._messages.read(self._interval.upto)
        due, deadline = len(self._messages), 0.0
        for process in algorithm_of(self._view).processes(self._view):
            self._begin(process)
        while self._last < self._interval.upto:
            if self._delivered < due:
                self._deliver()
            elif self._asking:
                self._answer()
                deadline = deadline or time.monotonic() + REST_SECONDS
                self._check_time(deadline)
            else:
                self._show(max(self._interval.upto, self._reached))
        for running in self._running:
            running.process.close()
        return list(self._published())

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

    def _published(self) -> Iterator[Publish[SparkBag]]:
        """The differences of states that follow each other."""
        (query,) = algorithm_of(self._view).positions(self._view)
        for (after, before), (csn, state) in zip(self._shown, self._shown[1:], strict=False):
            with self._timer.phase("compute"):
                changed = state.plus(before.negate()).net_effect()
                delta = changed.project((*keep(state.columns), (CSN, Literal(csn))))
            as_one = Interval(after, csn) if len(set(self._messages.units(after, csn))) > 1 else None
            yield Publish(((query, csn),), delta, as_one=as_one)

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() > deadline and self._reached > self._interval.upto:
            name, algorithm = self._view.name, algorithm_of(self._view).name
            raise NeverAtRest(
                f"view {name}: {algorithm} has come to no state that it can show in {REST_SECONDS:.0f} s",
                subject=name,
                hint="its answers see new insertions all the time; leave rollview.algorithm out",
            )

    def _begin(self, process: Process) -> None:
        running = _Running(process)
        self._running.append(running)
        self._advance(running, None)

    def _deliver(self) -> None:
        """Hands the next message over."""
        message = self._messages[self._delivered]
        self._delivered += 1
        waiting = next((each for each in self._running if isinstance(each.waits_on, Receive)), None)
        assert waiting is not None, "an algorithm takes messages in also while it waits for answers"
        self._advance(waiting, message.transaction)

    def _answer(self) -> None:
        """Hands the answers to all questions over, each behind all messages that it saw."""
        waiting, self._asking = self._asking, deque()
        answers = iter(self._ask([question for each in waiting for question in each.waits_on.questions]))
        for running in waiting:
            own = tuple(islice(answers, len(running.waits_on.questions)))
            seen = max(self._messages.place(each.source, each.saw.upto) for each in own)
            while self._delivered < self._messages.whole_units(seen):
                self._deliver()
            self._advance(running, own)

    def _ask(self, questions: list[Question[SparkBag]]) -> list[Answer[SparkBag]]:
        """Answers each of which saw all messages of its site up to some one."""
        found: dict[int, Answer[SparkBag]] = {}
        for _ in range(_LOOKS):
            places = [place for place in range(len(questions)) if place not in found]
            with self._timer.phase("lookups"):
                answers = self._relations.lookup([questions[each] for each in places], self._interval.after)
            self._timer.looked_up(answers)
            with self._timer.phase("read_changes"):
                self._messages.read(max(answer.saw.upto for answer in answers))
            for place, answer in zip(places, answers, strict=True):
                if (saw := self._messages.seen(answer)) is not None:
                    found[place] = replace(answer, saw=saw)
            if len(found) == len(questions):
                return [found[place] for place in range(len(questions))]
            time.sleep(_PAUSE_SECONDS)
        message = f"no answer saw a prefix of its site's transactions, {_LOOKS} times in a row"
        raise CaptureStalled(message, subject=self._view.name, hint="leave rollview.algorithm out")

    def _advance(self, running: _Running, value: Any) -> None:
        """Sends a result in and serves effects until one has to wait."""
        while True:
            try:
                with self._timer.phase("compute"):
                    effect = running.process.send(value)
            except StopIteration:
                self._running.remove(running)
                return
            running.waits_on = effect
            match effect:
                case Receive() | Pause():
                    return
                case Ask():
                    self._asking.append(running)
                    return
            value = self._serve(effect)

    def _serve(self, effect: Any) -> Any:
        match effect:
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
                assert relation is not None, "the rows of messages are of some relation"
                types = dict(zip(relation.columns, relation.table.types, strict=True))
                return self._rows_of({name: types[name] for name in columns}, rows)
            case Execute() | Compensated() | Recall() | SendAgain():
                # Nothing is lost, and a step begins with what is stored.
                return None
        raise RollviewError(f"{algorithm_of(self._view).name} asks for {type(effect).__name__}")

    def _rows_of(self, types: dict[str, str], rows: tuple[tuple[tuple[Any, ...], int], ...]) -> SparkBag:
        schema = arrow_schema([*types.items(), (COUNT, "bigint")])
        columns = zip(*((*row, count) for row, count in rows), strict=True) if rows else ([],) * len(schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return SparkBag.of_rows(self._session.spark, pa.table(arrays, schema=schema))
