"""salem2000: its equations, Figures 6 to 9, the examples of §3.3, and Lemma 4.2. It numbers no examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from rollview.algebra.history import Change
from rollview.algebra.relation import Table
from rollview.algorithms.effects import Interval
from rollview.algorithms.salem2000 import propagate, rolling
from rollview.algorithms.salem2000.compute_delta import view_delta
from rollview.algorithms.salem2000.execute import PropagationQuery, Times, execute
from rollview.algorithms.salem2000.query_lists import ListedQuery, Progress
from rollview.algorithms.salem2000.synchronous import equation_one, equation_two
from rollview.lab.examples.example import Difference, Example, Replay
from rollview.lab.examples.one_server import Server, between, points, timed, untimed
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view

A, B, C, D = 1, 3, 4, 6
"""The paper's times t_a < t_b < t_c < t_d."""

NOT_TIMED = Difference("006", "a delta table need not be timed; both have to be timed delta tables")

POINTS = (
    "a world of points: in transaction c every relation gets the row (c), and V is the product of all;",
    "R1(a,b] is R1's delta from a to b, R2@c the relation R2 as seen at c",
)


def _name(time: int) -> str:
    return {0: "0", A: "a", B: "b", C: "c", D: "d"}.get(time, str(time))


def _numbered(queries: list[str]) -> dict[str, str]:
    return {f"query {number}": query for number, query in enumerate(queries, 1)}


def _equation(key: str, title: str, queries: list[str]) -> Example:
    """An equation: the queries that are executed, and that their sum is the view delta."""
    printed = {**_numbered(queries), "the sum": "V(a,b]"}

    def replay() -> Replay:
        made = _EQUATIONS[key]()
        values = _numbered(made.queries(_name))
        right = untimed(made.published[0]) == untimed(timed(len(made.block.relations), A, B))
        return Replay({**values, "the sum": "V(a,b]" if right else "not V(a,b]"})

    return Example(f"salem2000/{key}", title, POINTS, printed, replay)


def server_of_equation(relations: int) -> Server:
    """The world of points at t_b."""
    server = points(relations, B)
    server.commit_upto(B)
    return server


def run_equation_1() -> Server:
    """Equation 1 for three relations, all of them seen at t_b."""
    server = server_of_equation(3)
    server.published.append(server.run(equation_one(server.block, Interval(A, B))))
    return server


def run_equation_2() -> Server:
    """Equation 2: what is left of the delta table is seen at t_a, what is right of it at t_b."""
    server = server_of_equation(3)
    server.published.append(server.run(equation_two(server.block, Interval(A, B))))
    return server


def run_equation_3() -> Server:
    """ComputeDelta for two relations, with the first two queries executed at t_c and the others at t_d."""
    server = points(2, D)
    server.commit_upto(B)
    server.clock = [C, C, D, D]
    server.published.append(server.run(view_delta(server.block, Interval(A, B))))
    return server


_EQUATIONS = {"equation-1": run_equation_1, "equation-2": run_equation_2, "equation-3": run_equation_3}

EQUATION_1 = [
    "+R1(a,b] R2@b R3@b",
    "+R1@b R2(a,b] R3@b",
    "+R1@b R2@b R3(a,b]",
    "-R1(a,b] R2(a,b] R3@b",
    "-R1(a,b] R2@b R3(a,b]",
    "-R1@b R2(a,b] R3(a,b]",
    "+R1(a,b] R2(a,b] R3(a,b]",
]
EQUATION_2 = ["+R1(a,b] R2@b R3@b", "+R1@a R2(a,b] R3@b", "+R1@a R2@a R3(a,b]"]
EQUATION_3 = ["+R1(a,b] R2@c", "-R1(a,b] R2(b,c]", "+R1@d R2(a,b]", "-R1(a,d] R2(a,b]"]


def equations() -> Iterator[Example]:
    """§3.1 and §3.2."""
    yield _equation("equation-1", "Synchronous propagation, 2ⁿ − 1 queries", EQUATION_1)
    yield _equation("equation-2", "Synchronous propagation, n queries", EQUATION_2)
    yield _equation("equation-3", "Asynchronous propagation with compensation", EQUATION_3)


def two_relations(initial: list[tuple[str, str]], changes: list[Change]) -> Server:
    """§3.3: V = R¹ R², joined on j; csn 1 is t_a, csn 2 is t_b, csn 3 is t_1."""
    tables = (Table("x", "r1", ("name", "j")), Table("x", "r2", ("name", "j")))
    view = parse_view("SELECT r1.name AS n1, r2.name AS n2 FROM x.r1 JOIN x.r2 ON r1.j = r2.j", tables, "v")
    rows = {f"x.{table}": [(name, 7) for at, name in initial if at == table] for table in ("r1", "r2")}
    server = Server(view, rows, [[change] for change in changes] + [[] for _ in range(4)])
    server.commit_upto(3)
    server.clock = [4, 4, 5, 5]
    return server


def two_deletions() -> Server:
    """r¹ is deleted at t_a, r² at t_b."""
    gone = [Change("x.r1", ("r1", 7), -1), Change("x.r2", ("r2", 7), -1)]
    return two_relations([("r1", "r1"), ("r2", "r2")], gone)


def two_insertions() -> Server:
    """x¹ is inserted at t_a, x² at t_b."""
    return two_relations([], [Change("x.r1", ("x1", 7), 1), Change("x.r2", ("x2", 7), 1)])


def results(server: Server) -> list[MemoryBag]:
    """The result of each query of ComputeDelta from 0 to t_1, and then the view delta."""
    delta = server.run(view_delta(server.block, Interval(0, 3)))
    executed = list(server.executed)
    found = []
    for query, time in executed:
        rows, _ = server.run(execute(server.block, query, time))
        found.append(rows)
    return [*found, delta]


_RESULTS = (
    "R1(0,1] R2@c",
    "-R1(0,1] R2(1,c]",
    "R1@d R2(0,1]",
    "-R1(0,d] R2(0,1]",
    "net effect",
)


def _timestamps(
    key: str, title: str, data: str, make: Callable[[], Server], found: tuple[str, ...]
) -> Example:
    def replay() -> Replay:
        return Replay(dict(zip(_RESULTS, map(_stamped, results(make())), strict=True)))

    return Example(f"salem2000/{key}", title, (data,), dict(zip(_RESULTS, found, strict=True)), replay)


def _stamped(rows: MemoryBag) -> str:
    """Rows as the paper writes them: the timestamp, the count and the tuple."""
    times = {1: "ta", 2: "tb"}
    return (
        "; ".join(f"({times[row[-1]]}, {count:+d}, {' '.join(row[:-1])})" for row, count in rows.items())
        or "∅"
    )


def timestamps() -> Iterator[Example]:
    """§3.3: why the minimum timestamp is the right one."""
    gone, come = "(ta, -1, r1 r2)", "(ta, +1, x1 x2)"
    yield _timestamps(
        "deletions",
        "Minimum timestamps, two deletions",
        "V = R1 R2 has r1 r2; r1 is deleted at ta, r2 at tb; queries are executed after t1",
        two_deletions,
        ("∅", "∅", "∅", gone, gone),
    )
    yield _timestamps(
        "insertions",
        "Minimum timestamps, two insertions",
        "x1 is inserted into R1 at ta, x2 into R2 at tb; queries are executed after t1",
        two_insertions,
        (come, "∅", "(tb, +1, x1 x2)", "(ta, -1, x1 x2)", "(tb, +1, x1 x2)"),
    )


def regions() -> Mapping[str, tuple[range, range]]:
    """Figure 7: by query its rectangle, on the axes of R¹ and of R²."""
    return {
        "+R1(a,b] R2@c": (range(A + 1, B + 1), range(C + 1)),
        "-R1(a,b] R2(b,c]": (range(A + 1, B + 1), range(B + 1, C + 1)),
        "+R1@d R2(a,b]": (range(D + 1), range(A + 1, B + 1)),
        "-R1(a,d] R2(a,b]": (range(A + 1, D + 1), range(A + 1, B + 1)),
    }


REALIZABLE = {
    "R1@b R2(a,b] R3@b": (PropagationQuery((None, Interval(A, B), None)), (B, 0, B)),
    "R1@b R2(a,b] R3@c": (PropagationQuery((None, Interval(A, B), None)), (B, 0, C)),
    "R1@a R2(a,b] R3@a": (PropagationQuery((None, Interval(A, B), None)), (A, 0, A)),
}
"""§2: propagation queries, each with the times at which its base tables are seen."""


def realizable_times(query: PropagationQuery, times: Times) -> list[int]:
    """§2: the times at which all base tables are seen, and at or before which every delta table ends."""
    return [
        now
        for now in range(8)
        if all(
            time == now if interval is None else interval.upto <= now
            for time, interval in zip(times, query.deltas, strict=True)
        )
    ]


def realizable() -> Example:
    """§2: when a query with base tables and delta tables can be evaluated by one transaction."""

    def replay() -> Replay:
        found = {name: realizable_times(*query) for name, query in REALIZABLE.items()}
        return Replay(
            {name: ", ".join(f"t{_name(time)}" for time in times) or "never" for name, times in found.items()}
        )

    printed = dict(zip(REALIZABLE, ("tb", "never", "never"), strict=True))
    data = ("ta < tb < tc; R2(a,b] is R2's delta from a to b, R1@b the relation R1 as seen at b",)
    return Example("salem2000/realizable", "Realizable queries", data, printed, replay)


def figure_7() -> Example:
    """ComputeDelta's four queries as rectangles, whose net effect is the L-shape of Figure 6."""

    def replay() -> Replay:
        server = run_equation_3()
        values, net = {}, MemoryBag(("t1", "t2"), {})
        for (query, time), name in zip(list(server.executed), server.queries(_name), strict=True):
            rows, _ = server.run(execute(server.block, query, time))
            first, second = regions()[name]
            covered = {row[:2] for row in rows.counts} == set(product(first, second))
            values[name] = "its rectangle" if covered else "another region"
            net = net.plus(untimed(rows))
        values["net effect"] = "the L-shape" if net == untimed(timed(2, A, B)) else "another shape"
        return Replay(values, tuple(values))

    printed = {**dict.fromkeys(regions(), "its rectangle"), "net effect": "the L-shape"}
    return Example("salem2000/figure-7", "ComputeDelta as regions", POINTS, printed, replay)


def run_figure_8(iterations: int = 3) -> Server:
    """Propagate: V(a,b], V(b,c] and V(c,d], each by four queries."""
    server = points(2, 40)
    server.clock, server.intervals = list(range(9, 40)), [2, 4, 6, 8][:iterations]
    server.run_process(next(propagate.processes(server.view)))
    return server


def run_figure_9() -> Server:
    """R¹ in intervals (a,b] (b,c] (c,d] (d,e], R² in intervals that are twice as wide; t_a = 0 … t_e = 8."""
    server = points(2, 11)
    server.clock = [3, 5, 5, 5, 6, 9, 10, 10, 10, 11]
    server.intervals = [2, 4, 4, 6, 8, 8]
    server.run_process(next(rolling.processes(server.view)))
    return server


def total(server: Server) -> MemoryBag:
    """The sum of what was published."""
    delta = server.published[0]
    for piece in server.published[1:]:
        delta = delta.plus(piece)
    return delta


def _by_kind(queries: list[str]) -> tuple[str, str]:
    return str(sum(each[0] == "+" for each in queries)), str(sum(each[0] == "-" for each in queries))


def figure_8() -> Example:
    """Three iterations of Propagate."""

    def replay() -> Replay:
        server = run_figure_8()
        forward, compensations = _by_kind(server.queries())
        mark = min(server.positions.values())
        right = total(server) == timed(2, 0, mark)
        values = {
            "forward queries": forward,
            "compensation queries": compensations,
            "view delta": f"V(a,{_AXIS[mark]}]" if right else "wrong",
        }
        return Replay(values, tuple(server.queries()))

    printed = {"forward queries": "6", "compensation queries": "6", "view delta": "V(a,d]"}
    return Example("salem2000/figure-8", "Three iterations of Propagate", POINTS, printed, replay)


_AXIS = {0: "a", 2: "b", 4: "c", 6: "d", 8: "e"}


def figure_9() -> Example:
    """Rolling propagation, with the state that §3.4 describes after it."""

    def replay() -> Replay:
        server = run_figure_9()
        progress: Progress = server.control[0]
        mark = min(server.positions.values())
        right = between(total(server), 0, mark) == timed(2, 0, mark)
        values = {
            "forward queries of R2": str(len(compensated(server))),
            "compensations that are cut": str(sum(pieces > 1 for pieces in compensated(server))),
            **{f"t_fwd[{i + 1}]": _AXIS[progress.forward[i]] for i in (0, 1)},
            **{f"t_comp[{i + 1}]": _AXIS[progress.compensated[i]] for i in (0, 1)},
            **{f"querylist[{i + 1}]": _listed(progress.lists[i]) for i in (0, 1)},
            "high-water mark": _AXIS[mark] if right else "wrong",
        }
        return Replay(values, tuple(server.queries()))

    printed = {
        "forward queries of R2": "2",
        "compensations that are cut": "2",
        "t_fwd[1]": "e",
        "t_fwd[2]": "e",
        "t_comp[1]": "c",
        "t_comp[2]": "e",
        "querylist[1]": "(c,d] (d,e]",
        "querylist[2]": "∅",
        "high-water mark": "c",
    }
    return Example("salem2000/figure-9", "Rolling propagation", POINTS, printed, replay)


def compensated(server: Server) -> list[int]:
    """For every forward query of R² how many compensation queries follow it."""
    pieces: list[int] = []
    for query, _ in server.executed:
        if query.deltas[0] is None:
            pieces.append(0)
        elif query.is_compensation:
            pieces[-1] += 1
    return pieces


def _listed(queries: tuple[ListedQuery, ...]) -> str:
    spans = (f"({_AXIS[each.interval.after]},{_AXIS[each.interval.upto]}]" for each in queries)
    return " ".join(spans) or "∅"


def lemma_4_2() -> Example:
    """Two delta tables added, as the lemma has it, and two timed ones."""

    def replay() -> Replay:
        values = {}
        for what, equation in (("of delta tables", equation_two), ("of timed delta tables", equation_one)):
            server = points(2, 3)
            delta = MemoryBag(("t1", "t2", "_csn"), {})
            for interval in (Interval(0, 2), Interval(2, 3)):
                server.commit_upto(interval.upto)
                part = server.run(equation(server.block, interval))
                both = untimed(part) == untimed(timed(2, interval.after, interval.upto))
                assert both, "it is a delta table"
                delta = delta.plus(part)
            values[f"the sum {what}"] = "timed" if delta == timed(2, 0, 3) else "not timed"
        return Replay(values)

    data = (
        *POINTS[:1],
        "delta tables from 0 to 2 and from 2 to 3: by equation 2, and timed ones by equation 1",
    )
    printed = {"the sum of delta tables": "timed", "the sum of timed delta tables": "timed"}
    differs = {"the sum of delta tables": NOT_TIMED}
    return Example("salem2000/lemma-4.2", "Delta tables combined", data, printed, replay, differs)


def examples() -> Iterator[Example]:
    """All of the paper's."""
    yield realizable()
    yield from equations()
    yield from timestamps()
    for make in (figure_7, figure_8, figure_9, lemma_4_2):
        yield make()
