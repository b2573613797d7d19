"""Version numbers: view maintenance that does not care how messages arrive.

**Source.** sze2000 report (all of §3 to §5) and paper. This module is Theorem 2: in which order updates are
sent for incremental computation and applied. Beside it: `versions` (§3), `update_types` and `irrelevant`
(§4.2), `incremental` (§4.1), `self_maintenance` (§4.2), `without_tuple` (§4.3), `compensate` (§5).

**Guarantees.** Complete for single-update and source-local transactions, on a network that misorders, repeats
and loses messages. Several transactions are in flight at once. For global transactions the paper promises
nothing; their parts become transactions of their own, so weak is what is left.

**Assumes.** What an answer saw is a prefix of its source's commits: a version number cannot say anything
else. Update messages carry old and new rows. No keys are needed in the view; those that are there save
queries. Declared foreign keys are enforced by their source.

**Symbols.** See the modules. The order of sending → `Transit.number`.

**Deviations.** The paper does not treat a crash of the view site. Highest processing and refreshed version
numbers are kept in memory; after a restart they begin at what `Recall` returns, the versions that were
installed with the stored view, and all later messages are asked for again. A message that is the last of
its source and gets lost shows in no later version; so sources are asked for what is new whenever time has
passed (`Pause`), which also repeats requests that were lost themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.align import END
from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, conjunction
from rollview.algebra.history import Transaction
from rollview.algebra.join_graph import access_path
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Install,
    Pause,
    Process,
    Recall,
    Receive,
    SendAgain,
    Spawn,
    Stored,
)
from rollview.algorithms.sze2000.compensate import block_rows
from rollview.algorithms.sze2000.incremental import follow
from rollview.algorithms.sze2000.update_types import Kind
from rollview.algorithms.sze2000.versions import Arrival, Computation, Refresh, Sent, Steps, Transit, ViewSite
from rollview.algorithms.sze2000.without_tuple import (
    ByKey,
    by_key,
    delete_by_key,
    modify_by_key,
    old_and_new,
    settable,
)


def refusal(view: View) -> str:
    """Why a view cannot be served; empty if it can."""
    return "" if view.root.is_linear else f"it maintains no operators above blocks such as {view.root.name}"


def processes(view: View) -> Iterator[Process]:
    """One process takes messages in, one looks after lost ones; each transaction has one of its own."""
    site = ViewSite(view)
    yield take_in(site)
    yield look_after(site)


def take_in(site: ViewSite) -> Process:
    """Sends transactions for incremental computation, each source's in its own order."""
    shown: dict[str, int] | None = yield Recall(site.view.name)
    if shown is not None:
        site.resume(dict(shown))
        for source, version in shown.items():
            yield SendAgain(source, version + 1, END)
    while True:
        transaction: Transaction = yield Receive()
        for transit in site.take(transaction):
            yield Spawn(proceed(site, maintain(site, transit)))
        for first, last in site.heard_of(transaction.source, transaction.version):
            yield SendAgain(transaction.source, first, last)
        ready = [item for item in site.waiting if site.has_arrived(item[0])]
        site.waiting = [item for item in site.waiting if not site.has_arrived(item[0])]
        for _, steps in ready:
            yield Spawn(proceed(site, steps))


def look_after(site: ViewSite) -> Process:
    """Asks again, after a while, for what is known to be missing and for what may be."""
    while True:
        yield Pause()
        for source in list(site.arrived):
            for first, last in site.lost(source):
                yield SendAgain(source, first, last)
            yield SendAgain(source, site.known(source) + 1, END)


def proceed(site: ViewSite, steps: Steps[None]) -> Process:
    """Runs steps until they end, or until a message has to arrive first: `take_in` then takes them up."""
    value = None
    while True:
        try:
            effect = steps.send(value)
        except StopIteration:
            return
        if not isinstance(effect, Arrival):
            value = yield effect
            continue
        value = None
        if not site.has_arrived(effect):
            site.waiting.append((effect, steps))
            for first, last in site.heard_of(effect.source, effect.version):
                yield SendAgain(effect.source, first, last)
            return


def maintain(site: ViewSite, transit: Transit) -> Steps[None]:
    """Computes what a transaction does to the view, and applies whatever is next in the order of sending."""
    refreshes: list[Refresh] = []
    for sent in transit.updates:
        refresh = yield from incremental_change(site, sent)
        if refresh is not None:
            refreshes.append(refresh)
    site.finished[transit.number] = (transit, tuple(refreshes))
    if site.refreshing:
        return
    site.refreshing = True
    while (finished := site.next_finished()) is not None:
        yield from apply(site, *finished)
    site.refreshing = False


def apply(site: ViewSite, transit: Transit, refreshes: tuple[Refresh, ...]) -> Steps[None]:
    """The next state of the view: one per transaction, also if nothing changed."""
    state: Bag = yield Stored(site.view.name)
    for refresh in refreshes:
        state = refresh(state)
    yield Install(site.view.name, state.net_effect(), site.claim(transit))
    site.was_applied(transit)


def incremental_change(site: ViewSite, sent: Sent) -> Steps[Refresh | None]:
    """The effect of an update on the view; None if there is none."""
    if not sent.rows:
        return None
    update, computation = sent.update, Computation(site, sent)
    block = computation.block
    if update.kind is not Kind.INSERTION and site.view.block is not None:
        way = by_key(block, update.position)
        if way is not None and update.kind is Kind.DELETION:
            return (yield from _delete(computation, way))
        outputs = settable(block, update) if way is not None else None
        if way is not None and outputs is not None:
            return (yield from _modify(computation, way, outputs))
    rows = yield from block_rows(block, update.position, sent.rows)
    rounds = access_path(block, update.position).rounds
    one_block = site.view.block is not None
    change = yield from follow(computation, rows, rounds, block.projection, view_first=one_block)
    return None if change is None else _add(site.view, block, change)


def _delete(computation: Computation, way: ByKey) -> Steps[Refresh | None]:
    position = computation.sent.update.position
    rows = yield from block_rows(computation.block, position, computation.sent.rows)
    key = computation.block.relations[way.relation].key
    found = yield from follow(computation, rows, way.rounds, keep(key), view_first=False)
    return None if found is None else delete_by_key(computation.block, way.relation, found)


def _modify(computation: Computation, way: ByKey, outputs: tuple[Output, ...]) -> Steps[Refresh | None]:
    if not outputs:
        return None
    block, update = computation.block, computation.sent.update
    rows = yield from old_and_new(block.relations[update.position], update)
    rows = rows.select(conjunction(block.local[update.position]))
    rows = rows.project((*keep(block.needed[update.position]), *outputs))
    shown = keep((*block.relations[way.relation].key, *(name for name, _ in outputs)))
    found = yield from follow(computation, rows, way.rounds, shown, view_first=False)
    return None if found is None else modify_by_key(block, way.relation, found, outputs)


def _add(view: View, block: Block, change: Bag) -> Refresh:
    names = zip(view.root.output_columns, block.output_columns, strict=True)
    renamed = change.project([(name, Column(own)) for name, own in names])
    return lambda state: state.plus(renamed)
