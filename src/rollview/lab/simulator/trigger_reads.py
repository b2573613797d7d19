"""What triggers can keep, by what they read: every schedule of small worlds, for each kind of server.

A view that joins two tables is kept in the transactions that change them: the trigger of each row joins it
with the other table, as the server lets it see that, and adds what comes out. Whether the view is right then
depends on three things. Does a statement see what was committed before it, or before its transaction
(`sees_snapshot`)? Does it lock the key that its row is joined by (`locks_keys`), or does whoever writes keep
all other writers out (`is_alone`)? And where a foreign key's cascade changes further rows in one statement:
do their triggers run at all, and what do they see of each other?

At every commit the view is compared with its query. A transaction that cannot continue waits; one that is
refused leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum

from rollview.algebra.expression import Row
from rollview.algebra.history import Change
from rollview.algebra.relation import Table
from rollview.lab.memory.evaluate import joined
from rollview.lab.simulator.world import State, first_state, make_changes
from rollview.planning import parse_view


class Cascades(StrEnum):
    """What triggers of rows do that a foreign key's action changes."""

    SAVED = "each sees the others as they were when it began"
    ALL_CHANGED = "each sees what the whole statement has changed"
    SILENT = "those of the cascade do not run"


@dataclass(frozen=True)
class Server:
    """How triggers read. One that `refuses` ends a transaction whose snapshot lacks a change of its keys."""

    sees_snapshot: bool = False
    locks_keys: bool = False
    refuses: bool = False
    is_alone: bool = False
    cascades: Cascades = Cascades.SAVED


SERVERS: Mapping[str, Server] = {
    "PostgreSQL, no locks (ipda without its doubts)": Server(),
    "PostgreSQL, READ COMMITTED, keys locked (immediate)": Server(locks_keys=True),
    "PostgreSQL, REPEATABLE READ, keys locked": Server(sees_snapshot=True, locks_keys=True),
    "PostgreSQL, the same, refused to be retried (immediate)": Server(
        sees_snapshot=True, locks_keys=True, refuses=True
    ),
    "InnoDB, REPEATABLE READ, plain reads": Server(sees_snapshot=True, cascades=Cascades.SILENT),
    "InnoDB, plain reads, keys locked": Server(sees_snapshot=True, locks_keys=True, cascades=Cascades.SILENT),
    "InnoDB, reads that lock (INSERT … SELECT)": Server(locks_keys=True, cascades=Cascades.SILENT),
    "SQLite": Server(is_alone=True, cascades=Cascades.ALL_CHANGED),
}
"""What there is, and what would be without a part of it."""

SALES = Table("shop", "sales", ("sale_id", "cust_id"), ("sale_id",))
CUSTOMER = Table("shop", "customer", ("cust_id", "state"), ("cust_id",))
_VIEW = parse_view(
    "SELECT s.sale_id, c.state FROM shop.sales s JOIN shop.customer c ON s.cust_id = c.cust_id",
    (SALES, CUSTOMER),
    "sold",
)
_KEY = {SALES.qualified: 1, CUSTOMER.qualified: 0}
"""The place of the customer's number in rows of each table."""

Statement = tuple[Change, ...]
"""What a statement changes; the rows of a cascade come first, as their triggers do."""


@dataclass(frozen=True)
class TriggerWorld:
    """First rows, and the statements of each transaction."""

    name: str
    initial: Mapping[str, tuple[Row, ...]]
    transactions: Mapping[str, tuple[Statement, ...]]


def _sale(number: int, customer: int, count: int = 1) -> Change:
    return Change(SALES.qualified, (number, customer), count)


def _customer(number: int, state: str, count: int = 1) -> Change:
    return Change(CUSTOMER.qualified, (number, state), count)


_NOTHING: Mapping[str, tuple[Row, ...]] = {SALES.qualified: (), CUSTOMER.qualified: ()}
WORLDS = (
    TriggerWorld("both at once", _NOTHING, {"x1": ((_customer(1, "WI"),),), "x2": ((_sale(7, 1),),)}),
    TriggerWorld(
        "an older snapshot",
        _NOTHING,
        {"x1": ((_customer(1, "WI"),),), "x2": ((_sale(6, 2),), (_sale(7, 1),))},
    ),
    TriggerWorld(
        "a cascade",
        {SALES.qualified: ((7, 1),), CUSTOMER.qualified: ((1, "WI"),)},
        {"x1": ((_sale(7, 1, -1), _customer(1, "WI", -1)),)},
    ),
)
"""A customer and a sale for it by two transactions; the sale's is older; both go in one statement."""


@dataclass
class _Open:
    """A transaction under way: how many statements it has run, its snapshot, its changes, what it keeps."""

    done: int = 0
    snapshot: State | None = None
    began: int = 0
    changes: list[Change] = field(default_factory=list)
    kept: list[tuple[Row, int]] = field(default_factory=list)
    keys: set[object] = field(default_factory=set)
    is_over: bool = False


@dataclass
class _Moment:
    """The state of a schedule."""

    base: State
    kept: dict[Row, int]
    open: dict[str, _Open]
    commits: list[list[Change]] = field(default_factory=list)
    story: tuple[str, ...] = ()


@dataclass
class Finding:
    """What all schedules of a world came to; the story is of the first that leaves the view wrong."""

    schedules: int = 0
    wrong: int = 0
    waits: bool = False
    refusals: int = 0
    story: tuple[str, ...] = ()


def try_triggers(server: Server, world: TriggerWorld) -> Finding:
    """Runs every schedule of a world."""
    finding, base = Finding(), first_state(world.initial)
    kept = dict(joined(_VIEW.blocks[0], [base[SALES.qualified], base[CUSTOMER.qualified]]))
    _explore(_Moment(base, kept, {name: _Open() for name in world.transactions}), server, world, finding)
    return finding


def _explore(moment: _Moment, server: Server, world: TriggerWorld, finding: Finding) -> None:
    names = [name for name, each in moment.open.items() if not each.is_over]
    ready = [name for name in names if _may_go_on(moment, server, world, name)]
    finding.waits |= len(ready) < len(names)
    for name in ready:
        after = deepcopy(moment)
        if not _step(after, server, world, name):
            finding.refusals += 1
        if not _is_right(after):
            finding.schedules, finding.wrong = finding.schedules + 1, finding.wrong + 1
            finding.story = finding.story or (*after.story, "the view differs from its query")
        else:
            _explore(after, server, world, finding)
    if not names:
        finding.schedules += 1


def _may_go_on(moment: _Moment, server: Server, world: TriggerWorld, name: str) -> bool:
    """Whether nobody else has what the next step locks."""
    own, statements = moment.open[name], world.transactions[name]
    if own.done == len(statements):
        return True
    others = [each for other, each in moment.open.items() if other != name and not each.is_over]
    if server.is_alone and any(each.done for each in others):
        return False
    wanted = set(_keys(statements[own.done])) if server.locks_keys else set()
    return not any(each.keys & wanted for each in others)


def _keys(statement: Statement) -> Iterator[object]:
    return (change.row[_KEY[change.table]] for change in statement)


def _step(moment: _Moment, server: Server, world: TriggerWorld, name: str) -> bool:
    """Runs the next statement or the commit of a transaction; False if it is refused."""
    own, statements = moment.open[name], world.transactions[name]
    if own.done == len(statements):
        own.is_over = True
        make_changes(moment.base, own.changes)
        for row, count in own.kept:
            moment.kept[row] = moment.kept.get(row, 0) + count
        moment.commits.append(own.changes)
        moment.story += (f"{name} commits",)
        return True
    statement = statements[own.done]
    if own.snapshot is None:
        own.snapshot, own.began = deepcopy(moment.base), len(moment.commits)
    own.done += 1
    keys = set(_keys(statement))
    if server.locks_keys:
        own.keys |= keys
    later = [change for commit in moment.commits[own.began :] for change in commit]
    if server.refuses and keys & set(_keys(tuple(later))):
        own.is_over = True
        moment.story += (f"{name} is refused",)
        return False
    own.changes += statement
    seen = deepcopy(own.snapshot if server.sees_snapshot else moment.base)
    make_changes(seen, own.changes)
    made = list(_made(statement, seen, server.cascades))
    own.kept += made
    moment.story += (f"{name} changes {', '.join(map(_told, statement))}, which joins {len(made)} rows",)
    return True


def _made(statement: Statement, seen: State, cascades: Cascades) -> Iterator[tuple[Row, int]]:
    """What the triggers of a statement add to the view; those of a cascade run first."""
    for change in statement if cascades is not Cascades.SILENT else statement[-1:]:
        tables = {name: rows for name, rows in seen.items() if name != change.table}
        there = {**tables, change.table: {change.row: change.count}}
        yield from joined(_VIEW.blocks[0], [there[SALES.qualified], there[CUSTOMER.qualified]])
        if cascades is Cascades.SAVED:
            # Whoever comes behind joins the others as they were when the statement began.
            make_changes(seen, [Change(change.table, change.row, -change.count)])


def _is_right(moment: _Moment) -> bool:
    """Whether the view is what its query says of what was committed."""
    computed = joined(_VIEW.blocks[0], [moment.base[SALES.qualified], moment.base[CUSTOMER.qualified]])
    return {row: count for row, count in moment.kept.items() if count} == dict(computed)


def _told(change: Change) -> str:
    sign = "+" if change.count > 0 else "-"
    return f"{sign}{change.table.rpartition('.')[2]}{list(change.row)}"
