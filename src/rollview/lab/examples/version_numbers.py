"""sze2000: Examples 1 to 12 of the report; the paper's Examples 1 and 2 are its 2 and 6."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Ask, Compensated
from rollview.algorithms.registry import ALGORITHMS
from rollview.algorithms.sze2000 import version_numbers
from rollview.algorithms.sze2000.update_types import Kind
from rollview.algorithms.sze2000.versions import Sent, Transit, ViewSite
from rollview.lab.examples.example import Difference, Example, Play, Played, Replay, counted, values_of
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.world import World, from_json

NOT_SHIPPED = Difference("006", "columns that the view does not need are not shipped")
TIMES = Difference("006", "the paper's own sub-queries 1 and 2 run at once: two rounds, not three")
ORDER = Difference("006", "(1) and (3) are of one source; (2) is of another one, and may come anywhere")


def relation(source: str, name: str, columns: str, *references: tuple[str, str]) -> dict[str, Any]:
    """A relation whose first column is its key."""
    keys = [{"columns": [column], "references": other} for column, other in references]
    return {
        "source": source,
        "name": name,
        "columns": list(columns),
        "key": [columns[0]],
        "foreign_keys": keys,
    }


def world_of(
    relations: list[dict[str, Any]],
    sql: str,
    initial: Mapping[str, Sequence[str]],
    scripts: Mapping[str, Sequence[Sequence[tuple[str, str, int]]]],
) -> World:
    """Rows are written as in the paper: `a1,b1`."""
    return from_json(
        {
            "scenario": "source-local",
            "relations": relations,
            "views": [{"name": "v", "sql": sql}],
            "initial": {name: [row.split(",") for row in rows] for name, rows in initial.items()},
            "scripts": {
                source: [
                    {"changes": [[table, row.split(","), count] for table, row, count in changes]}
                    for changes in script
                ]
                for source, script in scripts.items()
            },
        }
    )


def two_relations() -> World:
    """Examples 1 to 4: R1 = {(a1, b1)}, R2 = ∅, V = Π_C; (a2, b1) and (b1, c1) are inserted."""
    return world_of(
        [relation("x", "r1", "AB"), relation("y", "r2", "BC")],
        "SELECT r2.C FROM x.r1 JOIN y.r2 ON r1.B = r2.B",
        {"x.r1": ["a1,b1"]},
        {"x": [[("x.r1", "a2,b1", 1)]], "y": [[("y.r2", "b1,c1", 1)]]},
    )


APART = ("commit x", "deliver x", "ask y", "deliver y", "commit y", "deliver y", "ask x", "deliver x")
"""Example 1: the first update is done with before the second one."""

INTERFERING = ("commit x", "deliver x", "commit y", "ask y")
"""Example 2: R2's insertion happens just before the query about R1's insertion reaches R2."""

OVERTAKEN = (*INTERFERING, "deliver y 1")
"""Example 3: the answer arrives before the update that it saw, on a network that misorders."""

LOST = (*INTERFERING[:3], "fault", "lose y", *INTERFERING[3:], "deliver y")
"""Example 4: the notification of R2's insertion is lost, on a network that loses messages."""


def _two(steps: Sequence[str], network: str = "fifo", algorithm: str = "version-numbers") -> Play:
    return Play(two_relations(), ALGORITHMS[algorithm], steps, network)


def example_1() -> Example:
    """No interference."""
    play = _two(APART)
    printed = {"V after R1(a2,b1)": "∅", "V in the end": "c1,2"}

    def replay() -> Replay:
        played = play.run()
        states = dict(zip(printed, map(counted, played.states[1:]), strict=True))
        return Replay(states, played.outcome.story)

    return Example(
        "sze2000/1", "Maintenance without interference", play.describe(), printed, replay, play=play
    )


def _ends(key: str, title: str, plays: Mapping[str, Play], ends: Mapping[str, str]) -> Example:
    """V in the end of several runs."""

    def replay() -> Replay:
        played = {name: play.run() for name, play in plays.items()}
        values = {f"V in the end, {name}": counted(each.states[-1]) for name, each in played.items()}
        return Replay(values, next(reversed(played.values())).outcome.story)

    *_, last = plays.values()
    printed = {f"V in the end, {name}": end for name, end in ends.items()}
    return Example(key, title, last.describe(), printed, replay, play=last)


def example_2() -> Example:
    """An interfering insertion, without and with compensation."""
    plays = {
        "without compensation": _two(INTERFERING, algorithm="conventional"),
        "with version numbers": _two(INTERFERING),
    }
    ends = {"without compensation": "c1,3", "with version numbers": "c1,2"}
    return _ends("sze2000/2", "An interfering update", plays, ends)


def example_3() -> Example:
    """Interference found by the order of arrival: right on fifo, overlooked if an answer overtakes."""
    plays = {
        "by order of arrival": _two(INTERFERING, algorithm="agrawal-sweep"),
        "by order of arrival, swapped": _two(OVERTAKEN, "misordered", "agrawal-sweep"),
        "by version numbers, swapped": _two(OVERTAKEN, "misordered"),
    }
    ends = dict(zip(plays, ("c1,2", "c1,3", "c1,2"), strict=True))
    return _ends("sze2000/3", "Misordered messages", plays, ends)


def example_4() -> Example:
    """A lost notification."""
    plays = {
        "without version numbers": _two(LOST, "lossy", "agrawal-sweep"),
        "with version numbers": _two(LOST, "lossy"),
    }
    ends = {"without version numbers": "c1,1", "with version numbers": "c1,2"}
    return _ends("sze2000/4", "Lost messages", plays, ends)


COLUMNS = {"w.r1": "ABC", "x.r2": "DE", "x.r3": "FG", "x.r4": "BDFH", "y.r5": "CI", "y.r6": "HJ"}
"""Figure 1: R4 joins R1, R2, R3 and R6; R5 joins R1. R2 to R4 are at one source, R5 and R6 at another."""

MATCHING = {"x.r2": "d,e", "x.r3": "f,g", "x.r4": "b,d,f,h", "y.r5": "c,i", "y.r6": "h,j"}


def join_graph_world(rows: int = 1, width: int = 0) -> World:
    """Example 5: one insertion into R1; each other relation has `rows` rows, one of which joins.

    `width` is the number of characters to which a row is filled up; 0: as short as it is.
    """
    relations = [relation(name[0], name[2:], letters) for name, letters in COLUMNS.items()]
    sql = (
        f"SELECT {', '.join(f'{name[2:]}.{letter}' for name, letter in _letters())} "
        "FROM w.r1, x.r2, x.r3, x.r4, y.r5, y.r6 "
        "WHERE r1.B = r4.B AND r4.D = r2.D AND r4.F = r3.F AND r1.C = r5.C AND r4.H = r6.H"
    )
    initial = {name: [_row(name, number, width) for number in range(rows)] for name in MATCHING}
    return world_of(relations, sql, initial, {"w": [[("w.r1", "a,b,c", 1)]]})


def _letters() -> list[tuple[str, str]]:
    """Every column once: those that are joined by, from one of the relations."""
    firsts: dict[str, str] = {}
    for name, letters in COLUMNS.items():
        for letter in letters:
            firsts.setdefault(letter, name)
    return [(name, letter) for letter, name in firsts.items()]


def _row(name: str, number: int, width: int) -> str:
    values = MATCHING[name].split(",")
    if number:
        values = [f"{value}{number}" for value in values]
    rest = max(0, width - sum(map(len, values)))
    return ",".join((*values[:-1], values[-1] + "·" * rest if width else values[-1]))


SCANNED = ("w.r1", "x.r2", "x.r3", "x.r4", "y.r5", "y.r6")
"""The order of the view's definition, which left and right scans follow."""


def example_5() -> Example:
    """Sub-queries along the join graph, against left and right scans; the time units; the estimate."""
    graph = Play(join_graph_world(), ALGORITHMS["version-numbers"])
    scan = graph.by("agrawal-sweep")
    printed = {
        "sub-queries along the join graph": "3",
        "sub-queries of left and right scans": "5",
        "time units along the join graph": "6",
        "time units of left and right scans": "10",
        "from R2 for a product": "100 MB",
        "from R3 for a product": "100 MB",
        "the product of R2 and R3 at the view site": "200 TB",
    }

    def replay() -> Replay:
        along, scanned = graph.run(), scan.run()
        values = {
            "sub-queries along the join graph": str(along.outcome.costs.questions),
            "sub-queries of left and right scans": str(scanned.outcome.costs.questions),
            "time units along the join graph": str(2 * along.outcome.costs.rounds),
            "time units of left and right scans": str(2 * scanned.outcome.costs.rounds),
            **estimate("agrawal-sweep"),
        }
        return Replay(values, along.outcome.story)

    differs = {"time units along the join graph": TIMES}
    return Example(
        "sze2000/5", "A join graph of six relations", graph.describe(), printed, replay, differs, graph
    )


MILLION = 1_000_000


def estimate(algorithm: str) -> dict[str, str]:
    """The report's estimate for relations of a million rows of 100 bytes, from bytes measured with fewer.

    Bytes shipped are measured with 20 and with 40 rows of 100 bytes: what a relation ships grows by its rows
    if it is read for a product. The product has a row for every pair of rows, as wide as both.
    """
    small, large = shipped_bytes(algorithm, 20), shipped_bytes(algorithm, 40)
    per_row = {name: (large[name] - small[name]) / 20 for name in large}
    pairs = per_row["r2"] + per_row["r3"] if per_row["r2"] and per_row["r3"] else 0
    return {
        "from R2 for a product": _bytes(per_row["r2"] * MILLION),
        "from R3 for a product": _bytes(per_row["r3"] * MILLION),
        "the product of R2 and R3 at the view site": _bytes(pairs * MILLION**2),
    }


def shipped_bytes(algorithm: str, rows: int, width: int = 100) -> dict[str, int]:
    """By relation, the bytes of the values that its answers shipped, for relations of so many rows."""
    seen: list[tuple[object, object]] = []
    Play(join_graph_world(rows, width), ALGORITHMS[algorithm]).watched(seen).run()
    total = dict.fromkeys((name[2:] for name in SCANNED[1:]), 0)
    for name, found in answers(seen):
        total[name] += sum(len(str(value)) for row in found.counts for value in row)
    return total


def answers(seen: Sequence[tuple[object, object]]) -> Iterator[tuple[str, MemoryBag]]:
    """The answers of sources, relation by relation."""
    for effect, result in seen:
        if isinstance(effect, Ask) and isinstance(result, tuple):
            for question, answer in zip(effect.questions, result, strict=True):
                for join_step, rows in zip(question.sub_query.join_steps, answer.rows, strict=True):
                    yield question.block.relations[join_step.relation].alias, rows


def _bytes(number: float) -> str:
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.0f} {unit}"
    return f"{number:.0f} B"


RELATIONS = [relation("x", "r1", "ABC"), relation("y", "r2", "CDE"), relation("y", "r3", "EFG")]
SQL = "SELECT r1.B, r2.C, r3.F FROM x.r1 JOIN y.r2 ON r1.C = r2.C JOIN y.r3 ON r2.E = r3.E"
INITIAL = {"x.r1": ["a1,b1,c1"], "y.r2": ["c1,d1,e1", "c2,d2,e2"], "y.r3": ["e1,f1,g1", "e2,f2,g2"]}
TWO_INSERTIONS = [("x.r1", "a2,b2,c2", 1), ("x.r1", "a3,b3,c1", 1)]
MODIFICATION = [("y.r3", "e1,f1,g1", -1), ("y.r3", "e1,f2,g1", 1)]


MODIFIED = (
    *("commit x", "deliver x", "ask y", "deliver y"),
    *("commit y", "deliver y", "ask y", "deliver y"),
)
"""Example 7: the insertions are done with before the modification."""


def three_relations(**scripts: Sequence[Sequence[tuple[str, str, int]]]) -> World:
    """Examples 6 to 12, with what the sources commit."""
    return world_of(RELATIONS, SQL, INITIAL, scripts)


class WatchedSite(ViewSite):
    """A view site that writes version numbers down as the report prints them: they begin at 1, here at 0.

    By updated relation its initial ones; under V the refreshed ones. Updates of the relations in `forced` are
    handled as if the view did not keep their key, so that they query the other relations (Example 8).
    """

    def __init__(self, view: View, forced: Set[int]) -> None:
        super().__init__(view)
        self.numbers: dict[str, list[tuple[int, ...]]] = {}
        self._forced = forced

    def _send(self, transaction: Transaction) -> Transit:
        transit = super()._send(transaction)
        for sent in transit.updates:
            initial = tuple(number + 1 for number in sent.initial)
            self.numbers.setdefault(f"R{sent.update.position + 1}", []).append(initial)
        return replace(transit, updates=tuple(map(self._made_to_query, transit.updates)))

    def _made_to_query(self, sent: Sent) -> Sent:
        if sent.update.position not in self._forced:
            return sent
        return replace(sent, update=replace(sent.update, kind=Kind.INSERTION))

    def was_applied(self, transit: Transit) -> None:
        super().was_applied(transit)
        places = range(len(self.view.blocks[0].relations))
        self.numbers.setdefault("V", []).append(tuple(self.refreshed(0, place) + 1 for place in places))


Seen = list[tuple[object, object]]
Numbers = dict[str, list[tuple[int, ...]]]


def watch_site(play: Play, forced: Set[int] = frozenset()) -> tuple[Played, Numbers, Seen]:
    """A run with its version numbers, and with every effect and its result."""
    site, seen = WatchedSite(play.world.views[0], forced), Seen()
    steps = [version_numbers.take_in(site), version_numbers.look_after(site)]
    algorithm = replace(play.algorithm, processes=lambda _: iter(steps))
    return replace(play, algorithm=algorithm).watched(seen).run(), site.numbers, seen


def _tuple(numbers: Sequence[tuple[int, ...]]) -> str:
    return "; ".join(f"⟨{', '.join(map(str, each))}⟩" for each in numbers)


def _answers(seen: Seen, name: str) -> list[str]:
    return [values_of(rows) for alias, rows in answers(seen) if alias == name]


def example_6() -> Example:
    """The view is asked first."""
    play = Play(three_relations(x=[TWO_INSERTIONS]), ALGORITHMS["version-numbers"])

    def replay() -> Replay:
        played, numbers, seen = watch_site(play)
        values = {
            "initial version numbers": _tuple(numbers["R1"]),
            "sub-queries": str(played.outcome.costs.questions),
            "from R2": ", ".join(_answers(seen, "r2")),
            "from R3": ", ".join(_answers(seen, "r3")),
            "V": counted(played.states[-1]),
            "refreshed version numbers": _tuple(numbers["V"]),
        }
        return Replay(values, played.outcome.story)

    printed = {
        "initial version numbers": "⟨2, 1, 1⟩",
        "sub-queries": "1",
        "from R2": "c2,d2,e2",
        "from R3": "e2,f2,g2",
        "V": "b1,c1,f1,1; b2,c2,f2,1; b3,c1,f1,1",
        "refreshed version numbers": "⟨2, 1, 1⟩",
    }
    differs = dict.fromkeys(("from R2", "from R3"), NOT_SHIPPED)
    return Example("sze2000/6", "Partial self-maintenance", play.describe(), printed, replay, differs, play)


def example_7() -> Example:
    """A modification without the complete tuple."""
    world = three_relations(x=[TWO_INSERTIONS], y=[MODIFICATION])
    play = Play(world, ALGORITHMS["version-numbers"], MODIFIED)

    def replay() -> Replay:
        played, _, seen = watch_site(play)
        asked = [name for name, _ in answers(seen)][2:]
        values = {
            "relations asked for the modification": ", ".join(name.upper() for name in asked),
            "from R2": _answers(seen, "r2")[-1],
            "V": counted(played.states[-1]),
        }
        return Replay(values, played.outcome.story)

    printed = {
        "relations asked for the modification": "R2",
        "from R2": "c1,d1,e1",
        "V": "b1,c1,f2,1; b2,c2,f2,1; b3,c1,f2,1",
    }
    differs = {"from R2": NOT_SHIPPED}
    return Example("sze2000/7", "Modification as one update", play.describe(), printed, replay, differs, play)


COMPENSATED = {
    "x": [[("x.r1", "a3,b3,c1", 1), ("x.r1", "a2,b2,c2", 1)]],
    "y": [[("y.r2", "c1,d1,e1", -1)], [("y.r3", "e2,f2,g2", -1)]],
}
"""Examples 8 to 12: (1) y deletes from R2, (2) x inserts into R1, (3) y deletes from R3."""

COMPENSATED_STEPS = (
    *("commit y", "deliver y", "commit x", "commit y", "deliver x", "deliver y", "ask x"),
    *("ask y",) * 3,
)
"""All three are committed before the first answer; the deletion from R2 is made to query, as there."""

R2 = frozenset({1})
"""The relation whose updates Example 8 forces to query."""


def compensated() -> Play:
    """The run that Examples 8 to 12 are about."""
    return Play(three_relations(**COMPENSATED), ALGORITHMS["version-numbers"], COMPENSATED_STEPS)


def example_8() -> Example:
    """Initial version numbers, what is found, and in which orders the updates may be sent."""
    play = compensated()

    def replay() -> Replay:
        played, numbers, seen = watch_site(play, R2)
        found = dict(zip(FOUND, (values_of(rows) for _, rows in answers(seen)), strict=True))
        values = {
            "initial version numbers of (1)": _tuple(numbers["R2"]),
            "initial version numbers of (2)": _tuple(numbers["R1"]),
            "initial version numbers of (3)": _tuple(numbers["R3"]),
            **{what: rows.replace("∅", "-") for what, rows in found.items()},
            "which must be sent in order": in_order(),
        }
        return Replay(values, played.outcome.story)

    tables = dict(zip(FOUND, ("a1,b1,c1; a3,b3,c1", "e1,f1,g1", "c2,d2,e2", "-", "c2,d2,e2"), strict=True))
    printed = {
        "initial version numbers of (1)": "⟨1, 2, 1⟩",
        "initial version numbers of (2)": "⟨2, 2, 1⟩",
        "initial version numbers of (3)": "⟨2, 2, 2⟩",
        **tables,
        "which must be sent in order": "(2), (3)",
    }
    differs = {what: NOT_SHIPPED for what, rows in tables.items() if rows != "-"}
    differs["which must be sent in order"] = ORDER
    title = "Interfering and missing updates"
    return Example("sze2000/8", title, play.describe(), printed, replay, differs, play)


FOUND = (
    "Table 1: from R1 for (1)",
    "Table 1: from R3 for (1)",
    "Table 2: from R2 for (2)",
    "Table 2: from R3 for (2)",
    "Table 3: from R2 for (3)",
)

SENDING = {
    "(1) (2) (3)": ("commit y", "commit y", "commit x", "deliver y", "deliver x", "deliver y"),
    "(1) (3) (2)": ("commit y", "commit y", "commit x", "deliver y", "deliver y", "deliver x"),
    "(2) (1) (3)": ("commit y", "commit y", "commit x", "deliver x", "deliver y", "deliver y"),
    "(3) (1) (2)": ("commit y", "commit y", "commit x", "deliver y 1", "deliver y", "deliver x"),
}
"""Orders of arrival at the view site, by schedules on a network that misorders."""


def in_order() -> str:
    """Which two updates are sent in one order, in whatever order they arrive; the view is complete always."""
    orders = [sent_in(steps) for steps in SENDING.values()]
    pairs = [("(1)", "(2)"), ("(1)", "(3)"), ("(2)", "(3)")]
    kept = [
        pair for pair in pairs if len({order.index(pair[0]) < order.index(pair[1]) for order in orders}) == 1
    ]
    return "; ".join(", ".join(pair) for pair in kept)


def sent_in(steps: Sequence[str]) -> list[str]:
    """The order in which updates that arrive by a schedule are sent for incremental computation."""
    play = Play(three_relations(**COMPENSATED), ALGORITHMS["version-numbers"], steps, "misordered")
    played, numbers, _ = watch_site(play)
    names = {"R2": "(1)", "R1": "(2)", "R3": "(3)"}
    assert str(played.level) == "complete"
    # The sum of an update's initial version numbers grows with every one that is sent.
    return sorted(set(names.values()), key=lambda each: _sent(numbers, names, each))


def _sent(numbers: Mapping[str, list[tuple[int, ...]]], names: Mapping[str, str], update: str) -> int:
    return next(sum(numbers[relation][0]) for relation, name in names.items() if name == update)


def corrections(seen: Seen) -> dict[str, MemoryBag]:
    """By the relations whose columns they have, what query results were corrected by."""
    found = {}
    for effect, _ in seen:
        if isinstance(effect, Compensated):
            relations = sorted({column.partition(".")[0].upper() for column in effect.rows.columns})
            found[" and ".join(relations)] = effect.rows
    return found


def _compensation(
    key: str, title: str, printed: Mapping[str, str], differs: Mapping[str, Difference]
) -> Example:
    play = compensated()

    def replay() -> Replay:
        played, _, seen = watch_site(play, R2)
        found = corrections(seen)
        values = {
            "dropped from what the view shows of R2": values_of(found["R2 and R3"], "r2.C"),
            "dropped from what the view shows of R3": values_of(found["R2 and R3"], "r3.F"),
            "added to what R3 answered": values_of(found["R3"].negate()),
            "dropped from what R1 answered": values_of(found["R1"]),
            **dict(zip(STATES, map(counted, played.states[1:]), strict=True)),
        }
        return Replay({what: values[what] for what in printed}, played.outcome.story)

    return Example(key, title, play.describe(), printed, replay, differs, play)


STATES = ("V after (1)", "V after (2)", "V after (3)")


def example_9() -> Example:
    """Lemma 2 (missing deletion): what the view showed for c1 goes."""
    names = ("dropped from what the view shows of R2", "dropped from what the view shows of R3")
    printed = dict(zip(names, ("c1", "f1"), strict=True))
    return _compensation("sze2000/9", "A missing deletion (Table 4)", printed, {})


def example_10() -> Example:
    """Lemma 5 (interfering deletion): what R3 did not show any more comes back."""
    what = "added to what R3 answered"
    title = "An interfering deletion (Table 5)"
    return _compensation("sze2000/10", title, {what: "e2,f2,g2"}, {what: NOT_SHIPPED})


def example_11() -> Example:
    """Lemma 6 (interfering insertion)."""
    what = "dropped from what R1 answered"
    title = "An interfering insertion (Table 6)"
    return _compensation("sze2000/11", title, {what: "a3,b3,c1"}, {what: NOT_SHIPPED})


def example_12() -> Example:
    """The states of the view."""
    printed = dict(zip(STATES, ("∅", "b2,c2,f2,1", "∅"), strict=True))
    return _compensation("sze2000/12", "Complete consistency", printed, {})


def examples() -> Iterator[Example]:
    """All of the report's."""
    for make in (
        *(example_1, example_2, example_3, example_4, example_5, example_6),
        *(example_7, example_8, example_9, example_10, example_11, example_12),
    ):
        yield make()
