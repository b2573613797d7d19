"""beyer2000: the situations of §1.2, §4, §5 and §6, and its figures. The paper numbers no examples.

Times of day are minutes, as in `database_worlds`. A script says which process continues with what, such as
`x1: update clock insert`; `tick` lets the clock show its next time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rollview.algebra.history import Change
from rollview.algebra.net_effect import Range, condense, condensed_around, in_order
from rollview.algebra.valid_time import ValidTime, ended, valid_together
from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda import VARIANTS, Variant
from rollview.algorithms.beyer2000.ipda_effects import TIMESTAMP, XID, Apply, RecordsOf
from rollview.errors import CorruptView
from rollview.lab.examples.example import Example, Replay
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.database import check_integrity
from rollview.lab.simulator.database_simulation import explore, simulate_ipda
from rollview.lab.simulator.database_worlds import (
    ACCOUNTS,
    CUSTOMER,
    SALES,
    IpdaRun,
    IpdaWorld,
    Statement,
    UpdateTransaction,
    chain,
    clock,
    deposits,
    lost_update,
    transfer,
    withdrawals,
)
from rollview.lab.simulator.policies import Policy
from rollview.lab.simulator.properties import check_ipda
from rollview.lab.simulator.schedule import Scripted
from rollview.planning import parse_view

INITIAL = VARIANTS["algorithm 1, no lock"]
LOCKED_INITIAL = VARIANTS["algorithm 1, coarse lock"]
COMMIT_TABLE = VARIANTS["algorithm 2 with the commit table, coarse lock"]
SEVERAL_CLOCKS = VARIANTS["algorithm 2 with the commit table, coarse lock, several clocks"]

APPLY_INITIAL = "read read retrieve apply"
APPLY_CORRECTED = "pass read retrieve apply"
THREE = clock(3, 0)


def run_script(world: IpdaWorld, variant: Variant, *script: str) -> IpdaRun:
    """Runs lines of a script, one process after the other; then the calmest steps."""
    steps: list[str] = []
    for line in script:
        name, _, verbs = line.partition(": ")
        steps += [f"{verb} {name}" for verb in verbs.split()] if verbs else [name]
    return simulate_ipda(world, variant, Scripted(steps), narrated=True)


def shown(run: IpdaRun, view: str, upto: int) -> dict[str, int]:
    """The totals per account that readers saw."""
    state = next(each for each in run.refreshed if (each.view, each.upto) == (view, upto))
    return dict(row for row, _ in state.contents.items())


def _totals(run: IpdaRun, view: str, upto: int = THREE) -> str:
    return ", ".join(f"{account}: {total}" for account, total in shown(run, view, upto).items()) or "nothing"


def _view(sql: str, name: str) -> View:
    return parse_view(sql, (CUSTOMER, SALES), name)


WI_CUST = _view("SELECT c.custId, c.name FROM shop.customer c WHERE c.state = 'WI'", "WICust")
STATE_COUNT = _view(
    "SELECT c.state, count(*) AS count FROM shop.sales s JOIN shop.customer c ON s.custId = c.custId "
    "GROUP BY c.state",
    "StateCount",
)


def two_sales() -> IpdaWorld:
    """§1.2: x1 and x2 both add a sale of a customer in Wisconsin."""
    rows = ((1, 51, 5), (2, 52, 5))
    sales = tuple(
        UpdateTransaction(f"x{row[0]}", (Statement((f"sale {row[0]}",), (Change(SALES.qualified, row, 1),)),))
        for row in rows
    )
    initial = {CUSTOMER.qualified: ((51, "Paul", "WI"), (52, "Peter", "WI")), SALES.qualified: ()}
    refreshes = (("StateCount", 2),)
    return IpdaWorld("two sales", (STATE_COUNT,), initial, sales, refreshes, (1, 3), (0,))


def motivation() -> Example:
    """§1.2: who waits for the record of Wisconsin."""
    world = two_sales()
    policies = {"immediate": Policy.IMMEDIATE, "IPDA": Policy.IPDA}

    def waits(policy: Policy) -> str:
        return "yes" if any(run.waits.view_rows for run in explore(world, COMMIT_TABLE, policy)) else "no"

    def replay() -> Replay:
        values = {f"one waits for the other, {name}": waits(policy) for name, policy in policies.items()}
        run = run_script(world, COMMIT_TABLE)
        state = run.refreshed[-1].contents
        return Replay({**values, "StateCount after both": str(state)}, run.story)

    printed = {
        "one waits for the other, immediate": "yes",
        "one waits for the other, IPDA": "no",
        "StateCount after both": "[WI, 2]",
    }
    data = (f"StateCount = {STATE_COUNT.sql}", "x1 and x2 each add a sale in Wisconsin and commit later")
    return Example("beyer2000/1.2", "Conflicts on a record of the view", data, printed, replay)


FIGURE_2 = [
    *(("a", 1, 1, 5), ("b", 1, 2, 9), ("c", 1, 2, 12), ("d", 1, 3, 13)),
    *(("e", 1, 3, 15), ("f", 1, 4, 18), ("g", 1, 4, 22)),
]
"""A delta table as the text describes Figure 2: transactions 2, 3 and 4 wrote in the window (10, 20], 4 went
on past it, and 2 and 3 have two changes each."""


def figure_2_steps() -> tuple[list[object], Apply[MemoryBag]]:
    """The requests of Algorithm 1 when it rolls a view from 10 to 20 over that table, and what it applies."""
    view = parse_view("SELECT id, amount FROM bank.accounts", (ACCOUNTS,), "V")
    columns = ("id", "amount", XID, TIMESTAMP)

    def between(after: int, upto: int) -> MemoryBag:
        return MemoryBag.of(columns, [row for row in FIGURE_2 if after < row[3] <= upto])

    steps = ipda.apply(INITIAL, view, 20)
    asked: list[object] = [next(steps), steps.send(10), steps.send(None), steps.send(between(10, 20))]
    retrieve = steps.send(between(20, 99))
    assert isinstance(retrieve, RecordsOf)
    chosen = {xid for (xid,) in retrieve.xids.counts}
    applied = steps.send(MemoryBag.of(columns, [row for row in FIGURE_2 if row[2] in chosen]))
    assert isinstance(applied, Apply)
    return [*asked, retrieve], applied


def figure_2() -> Example:
    """Algorithm 1 on a delta table."""

    def replay() -> Replay:
        asked, applied = figure_2_steps()
        retrieve = asked[-1]
        assert isinstance(retrieve, RecordsOf)
        xids = sorted(xid for (xid,) in retrieve.xids.counts)
        window = sorted({row[2] for row in FIGURE_2 if 10 < row[3] <= 20})
        values = {
            "transactions after Step 1": ", ".join(map(str, window)),
            "transactions after Step 2": ", ".join(map(str, xids)),
            "changes applied in Step 3": str(sum(len(piece.counts) for piece in applied.pieces)),
        }
        return Replay(values, tuple(map(str, asked)))

    printed = {
        "transactions after Step 1": "2, 3, 4",
        "transactions after Step 2": "2, 3",
        "changes applied in Step 3": "4",
    }
    data = tuple(f"{name}: transaction {xid} at {time}" for name, _, xid, time in FIGURE_2)
    return Example("beyer2000/figure-2", "A delta table, Algorithm 1", data, printed, replay)


LOST_UPDATE = (
    *("x1: update clock", "tick", f"Deposits: {APPLY_INITIAL}", "x1: insert commit", "tick"),
    f"Deposits: {APPLY_INITIAL}",
)
"""§4.1: the clock was read at 2:59, the apply at 3:01 misses the record, and so does the next one."""

WITHDRAWN = ("x1: update lock clock insert unlock", "tick")
"""§4.3: the withdrawal is recorded at 2:59, the deposit at 3:01, both views are refreshed to 3:00."""

_RECORD = "update lock clock insert unlock"
VIA_A2 = (
    *(f"x2: {_RECORD}", "tick", f"x1: {_RECORD}", "tick", f"x1: {_RECORD} commit", "tick"),
    *(f"x2: {_RECORD} commit", f"Deposits: pass {APPLY_INITIAL}"),
)
"""§4.4: x2's deposit is recorded at 2:59, x1's at 3:02, x2 waits for x1 in between."""

LATE_CLOCK = (
    *("tick", f"Deposits: {APPLY_CORRECTED}", "x1: update insert lock clock record unlock commit", "tick"),
    f"Deposits: {APPLY_CORRECTED}",
)
"""§4.6: the apply has read up to 3:00; then a node whose clock is late records a commit at 2:58."""


_COMMITTED = "lock clock record unlock commit"
LATE_ORDER = ("tick", f"x1: update update insert {_COMMITTED}", f"x2: update insert update {_COMMITTED}")
"""§4.6: x1 < x2, but x1 commits at 3:01 by one clock and x2 at 2:58 by another. Withdrawals are no rows of
Deposits, so those statements have nothing to insert."""


def via_a2() -> IpdaWorld:
    """§4.4 with both views, and a clock that shows a time for every record."""
    times = (clock(2, 59), *(clock(3, minute) for minute in (1, 2, 3, 4)))
    return replace(chain(), views=(withdrawals(), deposits()), times=times)


ANOMALIES: Mapping[str, tuple[str, IpdaWorld, Variant, Sequence[str]]] = {
    "4.1": ("Lost update", lost_update(), INITIAL, LOST_UPDATE),
    "4.3": ("Transactions not atomic across views", transfer(), LOCKED_INITIAL, WITHDRAWN),
    "4.4": ("Transactions reordered", via_a2(), LOCKED_INITIAL, VIA_A2),
    "4.6": ("Several clocks lose an update", lost_update(), SEVERAL_CLOCKS, LATE_CLOCK),
    "4.6-order": ("Several clocks reorder transactions", chain(), SEVERAL_CLOCKS, LATE_ORDER),
}
"""By section: world, variant and script of what goes wrong there."""

EXPLORED = {
    "4.1": lost_update(),
    "4.3": transfer(),
    "4.4": chain(),
    "4.6": lost_update(),
    "4.6-order": chain(),
}
"""The same situations, small enough that Algorithm 2 can be run through all schedules."""

_PRINTED = {
    "4.1": {"Deposits at 3:00": "a1: 100", "Deposits at 4:00": "a1: 100"},
    "4.3": {"Withdrawals at 3:00": "a1: -100", "Deposits at 3:00": "a1: 100"},
    "4.4": {"Deposits at 3:00": "a1: 100, a3: 100"},
    "4.6": {"Deposits at 3:00": "a1: 100", "Deposits at 4:00": "a1: 100"},
    "4.6-order": {"Deposits at 3:00": "a1: 100, a3: 100"},
}
"""a1 starts with $100, which Deposits shows."""

_MISSED = {
    "4.1": "no lost updates",
    "4.3": "atomic across views",
    "4.4": "no reordering",
    "4.6": "no lost updates",
    "4.6-order": "no reordering",
}


def run_anomaly(section: str) -> IpdaRun:
    """A run of what goes wrong in a section."""
    _, world, variant, script = ANOMALIES[section]
    return run_script(world, variant, *script)


def _anomaly(section: str) -> Example:
    title, world, _, _ = ANOMALIES[section]

    def replay() -> Replay:
        run = run_anomaly(section)
        values = {}
        for what in _PRINTED[section]:
            view, _, time = what.partition(" at ")
            values[what] = _totals(run, view, clock(*map(int, time.split(":"))))
        missed = sorted(map(str, check_ipda(run)))
        values["property that is missed"] = (
            _MISSED[section] if _MISSED[section] in missed else ", ".join(missed)
        )
        mistakes = [found for each in explore(EXPLORED[section], COMMIT_TABLE) if (found := check_ipda(each))]
        values["missed by Algorithm 2, over all schedules"] = "something" if mistakes else "nothing"
        return Replay(values, run.story)

    printed = {
        **_PRINTED[section],
        "property that is missed": _MISSED[section],
        "missed by Algorithm 2, over all schedules": "nothing",
    }
    data = tuple(f"{view.name} = {view.sql}" for view in world.views)
    statements = (
        f"{each.name}: {', '.join(str(change.row) for each_ in each.statements for change in each_.changes)}"
        for each in world.transactions
    )
    return Example(f"beyer2000/{section}", title, (*data, *statements), printed, replay)


def state_count_delta() -> MemoryBag:
    """§5: five sales in Wisconsin inserted and seven deleted, in one transaction."""
    return delta_of(STATE_COUNT, [(("WI", 5, 5, 10), 1), (("WI", -7, 5, 20), 1)])


Pair = tuple[tuple[object, ...], int]


def delta_of(view: View, pairs: Sequence[Pair]) -> MemoryBag:
    """Records of a view's delta table, with xid and timestamp."""
    return MemoryBag.of_pairs((*view.root.state_columns, XID, TIMESTAMP), pairs)


def apply_pieces(view: View, state: MemoryBag, *pieces: MemoryBag) -> MemoryBag:
    """Applies pieces one after the other, as a database with a unique index does."""
    for piece in pieces:
        state = view.root.roll(state, piece)
        check_integrity(view, state)
    return state


def net_count() -> Example:
    """§5: the net effect on one group."""

    def replay() -> Replay:
        net = STATE_COUNT.root.net_effect(state_count_delta())
        nine, two = (MemoryBag.of(STATE_COUNT.root.state_columns, [("WI", n)]) for n in (9, 2))
        pieces = in_order(STATE_COUNT.root, net)
        values = {
            "net effect": "; ".join(f"{state} {count:+d}" for state, count in net.counts),
            "of 9 sales remain": str(STATE_COUNT.root.present(apply_pieces(STATE_COUNT, nine, *pieces))),
            "of 2 sales remain": str(STATE_COUNT.root.present(apply_pieces(STATE_COUNT, two, *pieces))),
        }
        return Replay(values)

    printed = {"net effect": "WI -2", "of 9 sales remain": "[WI, 7]", "of 2 sales remain": "∅"}
    data = (f"StateCount = {STATE_COUNT.sql}", "one statement inserts five sales, the next one deletes seven")
    return Example("beyer2000/5-count", "Net effect of a summary delta", data, printed, replay)


PETUNIAS: list[Pair] = [
    ((52, "Paul's Petunias", 5, 10), -1),
    ((52, "Peter's Petunias", 5, 20), 1),
    ((52, "Peter's Petunias", 9, 30), -1),
    ((52, "Patty's Petunias", 9, 40), 1),
]
PAUL = MemoryBag.of(("custId", "name"), [(52, "Paul's Petunias")])


def petunias() -> list[MemoryBag]:
    """§5: the records of ΔWICust, one by one."""
    return [delta_of(WI_CUST, [pair]) for pair in PETUNIAS]


def net_petunias() -> Example:
    """§5: a shop that is sold twice."""

    def first(*order: int) -> str:
        records = petunias()
        try:
            apply_pieces(WI_CUST, PAUL, *(records[place] for place in order))
        except CorruptView as error:
            return "key violated" if "twice" in error.message else "nothing to delete"
        return "applied"

    def replay() -> Replay:
        net = WI_CUST.root.net_effect(delta_of(WI_CUST, PETUNIAS))
        deletions, insertions = in_order(WI_CUST.root, net)
        values = {
            "second record first": first(1),
            "third record first": first(2),
            "in the proper sequence": first(0, 1, 2, 3),
            "net effect, deletions": str(deletions.negate()),
            "net effect, insertions": str(insertions),
            "the view": str(apply_pieces(WI_CUST, PAUL, deletions, insertions)),
        }
        return Replay(values)

    printed = {
        "second record first": "key violated",
        "third record first": "nothing to delete",
        "in the proper sequence": "applied",
        "net effect, deletions": "[52, Paul's Petunias]",
        "net effect, insertions": "[52, Patty's Petunias]",
        "the view": "[52, Patty's Petunias]",
    }
    records = (f"xid {xid}, {time}: {count:+d} {key} {name}" for (key, name, xid, time), count in PETUNIAS)
    data = (f"WICust = {WI_CUST.sql}", *records)
    return Example("beyer2000/5-petunias", "Net effect under a key", data, printed, replay)


HOUR = Range(THREE, clock(4, 0))
TIMED = ("custId", "name", TIMESTAMP)
CONDENSED: list[tuple[tuple[int, str, int], int]] = [
    ((1, "early", clock(2, 59)), 1),
    ((2, "short-lived", clock(3, 15)), 1),
    ((3, "kept", clock(3, 15)), 1),
    ((2, "short-lived", clock(3, 45)), -1),
    ((4, "late", clock(4, 1)), 1),
]


def condensing() -> Example:
    """§5: 3:00 to 4:00 is replaced by its net effect."""

    def replay() -> Replay:
        delta = condense(WI_CUST.root, MemoryBag.of_pairs(TIMED, CONDENSED), HOUR, TIMESTAMP)
        at = {row[1]: _of_day(row[2]) for row in delta.counts}
        values = {
            "the change of 3:15 is at": str(at["kept"]),
            "the change that 3:45 takes back": str(at.get("short-lived", "gone")),
            **{f"rolled to {time}": _rolled(time) for time in ("3:00", "3:30", "4:00")},
        }
        return Replay(values)

    printed = {
        "the change of 3:15 is at": "4:00",
        "the change that 3:45 takes back": "gone",
        "rolled to 3:00": "allowed",
        "rolled to 3:30": "refused",
        "rolled to 4:00": "allowed",
    }
    data = tuple(f"{_of_day(time)}: {count:+d} {name}" for (_, name, time), count in CONDENSED)
    return Example("beyer2000/5-condense", "A delta table condensed", data, printed, replay)


def _of_day(time: int) -> str:
    return f"{time // 60}:{time % 60:02}"


def _rolled(time: str) -> str:
    return "refused" if condensed_around([HOUR], clock(*map(int, time.split(":")))) else "allowed"


FIGURE_3 = {"debit": 1, "total computed": 3, "total committed": 4, "credit": 5, "commit": 6}
"""Figure 3: one transaction inserts into Debits at t1 and into Credits at t5, and commits at t6. In between,
TotalCredits is computed at t3 in a transaction that commits at t4."""


def valid_times(by_commit: bool) -> dict[str, ValidTime]:
    """The valid times of the three tables, by the time of the last change or by that of the commit."""
    begun = (FIGURE_3["commit"],) * 2 if by_commit else (FIGURE_3["debit"], FIGURE_3["credit"])
    start = FIGURE_3["total committed" if by_commit else "total computed"]
    return {
        "Debits": ValidTime(begun[0]),
        "Credits": ValidTime(begun[1]),
        "TotalCredits": ended(ValidTime(start), FIGURE_3["credit"]),
    }


def figure_3() -> Example:
    """§6: which tables may be combined."""

    def replay() -> Replay:
        values: dict[str, str] = {}
        for name, by_commit in (("change", False), ("commit", True)):
            times = valid_times(by_commit)
            values |= {f"{table}, by time of {name}": str(valid) for table, valid in times.items()}
            common = valid_together([times["Debits"], times["TotalCredits"]])
            values[f"Debits with TotalCredits, by time of {name}"] = str(common or "not combined")
        return Replay(values)

    printed = {
        "Debits, by time of change": "[1, ∞)",
        "Credits, by time of change": "[5, ∞)",
        "TotalCredits, by time of change": "[3, 5)",
        "Debits with TotalCredits, by time of change": "[3, 5)",
        "Debits, by time of commit": "[6, ∞)",
        "Credits, by time of commit": "[6, ∞)",
        "TotalCredits, by time of commit": "[4, 5)",
        "Debits with TotalCredits, by time of commit": "not combined",
    }
    data = tuple(f"t{time}: {what}" for what, time in FIGURE_3.items())
    return Example("beyer2000/figure-3", "Valid times of debits and credits", data, printed, replay)


def examples() -> Iterator[Example]:
    """All of the paper's."""
    yield motivation()
    yield figure_2()
    yield from map(_anomaly, ANOMALIES)
    for make in (net_count, net_petunias, condensing, figure_3):
        yield make()
