"""One run: sources, network and warehouse, driven step by step by a schedule until nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from rollview.algebra.history import Transaction
from rollview.algorithms.algorithm import Algorithm
from rollview.lab.simulator.network import (
    Answered,
    Asked,
    Channel,
    Heartbeat,
    Message,
    Network,
    Resend,
    Update,
)
from rollview.lab.simulator.schedule import Action, Schedule, Stepwise
from rollview.lab.simulator.source import SimulatedSource
from rollview.lab.simulator.store import Publication, Store, WarehouseCrash
from rollview.lab.simulator.warehouse import Costs, SimulatedWarehouse
from rollview.lab.simulator.world import World, first_state

_RETRIES = 3
_FINAL_ROUNDS = 60


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: commits and states shown, in true order; whether it came to rest.

    `story` and `steps` are there if the run was narrated: what happened, and the schedule by which it did.
    """

    timeline: tuple[Transaction | Publication, ...]
    at_rest: bool
    costs: Costs
    story: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def commits(self) -> tuple[Transaction, ...]:
        """The commits of the sources, in true order."""
        return tuple(event for event in self.timeline if isinstance(event, Transaction))

    @property
    def publications(self) -> tuple[Publication, ...]:
        """The states that readers saw, in order."""
        return tuple(event for event in self.timeline if isinstance(event, Publication))


def simulate_run(
    world: World, algorithm: Algorithm, network: Network, schedule: Schedule, narrated: bool = False
) -> Outcome:
    """Runs a world to its end. With `narrated`, the outcome has a line for every step."""
    return _Simulation(world, algorithm, network, schedule, narrated).run()


class _Simulation(Stepwise):
    def __init__(
        self, world: World, algorithm: Algorithm, network: Network, schedule: Schedule, narrated: bool
    ) -> None:
        super().__init__(schedule, narrated)
        self._world = world
        self._algorithm = algorithm
        self._network = network
        self._timeline: list[Transaction | Publication] = []
        self._store = Store(world, algorithm, self._show)
        self._sources = {source: _source(world, source) for source in world.sources}
        self._channels = {source: Channel() for source in world.sources}
        self._commits = 0
        self._numbers = count(1)
        self._costs = Costs()
        self._now = 0
        self._budget = {
            "lose": network.losses,
            "repeat": network.duplications,
            "crash": network.crashes,
            "restart": network.restarts,
            "retry": _RETRIES if network.losses else 0,
        }
        self._warehouse = self._new_warehouse()

    def run(self) -> Outcome:
        """Steps until nothing can happen, then lets the warehouse ask again for what got lost."""
        self._warehouse.start()
        for _ in range(_FINAL_ROUNDS):
            while actions := self._actions():
                self._now += 1
                try:
                    self._perform(self._chosen(actions))
                except WarehouseCrash:
                    self._restart_warehouse()
            if self._is_complete():
                break
            self._narrate("time passes; the warehouse asks again")
            self._warehouse.retry()
            if self._algorithm.sequenced:
                self._warehouse.reconnect()
        return Outcome(
            tuple(self._timeline),
            self._is_complete(),
            self._costs,
            self.story,
            tuple(self._steps),
        )

    def _is_complete(self) -> bool:
        """At rest: nothing is outstanding, and who looks after lost messages has propagated every commit."""
        if self._warehouse.is_waiting():
            return False
        if not self._algorithm.sequenced:
            committed = {name: source.version for name, source in self._sources.items()}
            return not self._warehouse.is_pausing() or self._last_shown() == committed
        kept = sum(len(unit.parts) for unit in self._store.history.units)
        return kept == self._commits and self._store.materialized == self._store.history.last_csn

    def _last_shown(self) -> dict[str, int] | None:
        shown = (event for event in reversed(self._timeline) if isinstance(event, Publication))
        return next(shown).versions

    def _actions(self) -> list[Action]:
        """All that could happen next, from calm to hostile."""
        actions: list[Action] = []
        misorders = self._network.misorders
        for source, channel in self._channels.items():
            if channel.to_warehouse:
                width = len(channel.to_warehouse) if misorders else 1
                actions += [("deliver", source, index) for index in range(width)]
            if channel.to_source:
                width = len(channel.to_source) if misorders else 1
                actions += [("ask", source, index) for index in range(width)]
        for name, position, newest in self._warehouse.ready():
            actions.append(("propagate", name, newest))
            if newest > position + 1:
                actions.append(("propagate", name, position + 1))
            if newest > position + 2:
                actions.append(("propagate", name, (position + 1 + newest) // 2))
        for name, source_ in self._sources.items():
            if source_.hidden:
                actions += [("reveal", name, version) for version in source_.hidden]
            if source_.version < len(source_.script):
                actions.append(("commit", name, 0))
        if actions and any(self._budget.values()):
            actions.append(("fault", "", 0))
        return actions

    def _faults(self) -> list[Action]:
        """All faults that could strike now; which one is a second choice, made once a fault was chosen."""
        budget = self._budget
        faults: list[Action] = []
        if budget["retry"] and self._warehouse.is_waiting():
            faults.append(("retry", "", 0))
        for kind in ("lose", "repeat"):
            if budget[kind]:
                for source, channel in self._channels.items():
                    if channel.to_warehouse:
                        faults.append((kind, source, len(channel.to_warehouse) - 1))
                    if channel.to_source:
                        faults.append((kind, source, -len(channel.to_source)))
        if budget["crash"]:
            faults += [("crash", "", 0), ("crash before", "", 0), ("crash after", "", 0)]
        if budget["restart"]:
            faults += [("restart", source, 0) for source in self._channels]
        return faults

    def _perform(self, action: Action) -> None:
        kind, where, index = action
        if kind == "deliver":
            message = self._channels[where].to_warehouse.pop(index)
            self._narrate(f"{where} → warehouse: {message}")
            self._warehouse.receive(message, self._now)
        elif kind == "ask":
            message = self._channels[where].to_source.pop(index)
            self._narrate(f"warehouse → {where}: {message}")
            self._serve(where, message)
        elif kind == "propagate":
            self._narrate(f"warehouse propagates {where} to csn {index}")
            self._warehouse.begin_interval(where, index)
        elif kind == "reveal":
            self._narrate(f"{where} makes version {index} visible")
            self._sources[where].reveal(index)
        elif kind == "commit":
            self._commit(where)
        elif faults := self._faults():
            self._strike(*self._chosen(faults))

    def _commit(self, where: str) -> None:
        transaction = self._sources[where].commit(self._now)
        self._commits += 1
        self._timeline.append(transaction)
        self._channels[where].to_warehouse.append(Update(transaction))
        if self._is_narrated:
            changes = ", ".join(f"{c.count:+d} {c.table}{list(c.row)}" for c in transaction.changes)
            part = f" (part of {transaction.global_id})" if transaction.global_id else ""
            self._narrate(f"{where} commits version {transaction.version}{part}: {changes}")

    def _serve(self, where: str, message: Message) -> None:
        """A source handles what reached it; its reply is on the way at once."""
        source, replies = self._sources[where], self._channels[where].to_warehouse
        if isinstance(message, Asked):
            answer = source.answer(message.question)
            replies.append(Answered(message.number, answer))
            if self._is_narrated:
                rows = "; ".join(str([list(row) for row in rows.counts]) for rows in answer.rows)
                holes = f" without {sorted(answer.saw.holes)}" if answer.saw.holes else ""
                self._narrate(f"{where} finds {rows}, seeing version {answer.saw.upto}{holes}")
        elif isinstance(message, Resend):
            last = source.version if message.last is None else message.last
            replies.extend(Update(transaction) for transaction in source.committed(message.first, last))
            replies.append(Heartbeat(where, source.version))

    def _strike(self, kind: str, where: str, index: int) -> None:
        self._budget[kind.split(maxsplit=1)[0]] -= 1
        if kind == "retry":
            self._narrate("the warehouse asks again")
            self._warehouse.retry()
        elif kind == "crash":
            self._restart_warehouse()
        elif kind in ("crash before", "crash after"):
            self._store.armed = kind.split()[1]
        elif kind == "restart":
            self._narrate(f"{where} restarts; messages under way are lost")
            self._channels[where] = Channel()
        else:
            channel = self._channels[where]
            messages = channel.to_source if index < 0 else channel.to_warehouse
            message = messages[index]
            self._narrate(f"the network {kind}s: {message}")
            if kind == "lose":
                messages.pop(index)
            else:
                messages.append(message)

    def _restart_warehouse(self) -> None:
        """A new warehouse starts on what was kept; it may crash while it does."""
        self._narrate("the warehouse crashes and restarts")
        self._warehouse = self._new_warehouse()
        try:
            self._warehouse.start()
        except WarehouseCrash:
            self._restart_warehouse()
            return
        if self._algorithm.sequenced:
            self._warehouse.reconnect()

    def _new_warehouse(self) -> SimulatedWarehouse:
        def send(source: str, message: Message) -> None:
            self._channels[source].to_source.append(message)

        return SimulatedWarehouse(self._store, self._algorithm, send, self._numbers, self._costs)

    def _show(self, publication: Publication) -> None:
        self._timeline.append(publication)
        if self._is_narrated:
            csn = "" if publication.csn is None else f" at csn {publication.csn}"
            views = "; ".join(f"{name} = {bag}" for name, bag in publication.contents.items())
            self._narrate(f"readers see{csn}: {views}")


def _source(world: World, name: str) -> SimulatedSource:
    tables = [table for table in world.tables if table.source == name]
    initial = first_state({table.qualified: world.initial[table.qualified] for table in tables})
    return SimulatedSource(name, tables, initial, world.scripts[name], name in world.snapshots)
