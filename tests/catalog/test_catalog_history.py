"""The catalog's history agrees with the algebra's, whatever is captured in whatever batches, and pruned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from catalog_world import DEAR_ON_POSTGRES, NAMES, SITES, TABLES, Both, Plan, Template, capture
from hypothesis import given, settings
from hypothesis import strategies as st

from rollview.algebra.history import Seen
from rollview.catalog import Catalog, Part, Unit
from rollview.errors import CatalogError, HistoryPruned


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[Both, list[int]]:
    """Units over two sites, some global, with source txids that grow or only differ; where batches end."""
    both = Both()
    orders = {site: draw(st.one_of(st.just(None), st.permutations(range(8)))) for site in SITES}
    for number in range(draw(st.integers(0, 8))):
        sites = draw(st.sets(st.sampled_from(SITES), min_size=1))
        source_txids = {
            site: 3 * number if (order := orders[site]) is None else order[number] for site in sorted(sites)
        }
        rows = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3)))
        both.add(Plan(source_txids, rows, draw(st.sampled_from([0.0, 1.0, 2.5]))))
    return both, sorted(draw(st.sets(st.integers(0, 8))))


def _feed(catalog: Catalog, both: Both, ends: list[int]) -> None:
    for first, last in itertools.pairwise([0, *ends, len(both.units)]):
        capture(catalog, both.units[first:last])


def _either(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except HistoryPruned:
        return HistoryPruned


def _sets(version: int) -> list[Seen]:
    """All sets of versions for few of them, prefixes with one hole for more."""
    if version <= 3:
        holes = [
            frozenset(some) for size in range(3) for some in itertools.combinations(range(1, version), size)
        ]
    else:
        holes = [frozenset(), *(frozenset({hole}) for hole in range(1, version))]
    return [Seen(version, some) for some in holes]


def _compare(catalog: Catalog, both: Both, pruned: int = 0) -> None:
    """All answers are right; below what was pruned an answer may also be refused."""
    units, last = both.units, len(both.units)

    def agree(answer: Callable[[], Any], expected: Any, may_refuse: bool) -> None:
        found = _either(answer)
        assert found == expected or (may_refuse and found is HistoryPruned)

    assert catalog.history.last_csn() == last
    for csn in range(last + 1):
        expected_time = units[csn - 1].commit_time if csn else None
        assert catalog.history.commit_time(csn) == (expected_time if csn >= pruned else None)
        for site in SITES:
            expected = both.history.version_at(site, csn)
            agree(lambda s=site, c=csn: catalog.history.version_at(s, c), expected, csn < pruned)
    for time in {0.0, *(unit.commit_time for unit in units), *(unit.commit_time + 0.5 for unit in units)}:
        expected_csn = max((unit.csn for unit in units if unit.commit_time <= time), default=0)
        assert catalog.history.csn_at(time) == (expected_csn if expected_csn >= pruned else 0)
    for table, (after, upto) in itertools.product(NAMES, itertools.combinations(range(last + 1), 2)):
        rows = sum(unit.rows.get(table, 0) for unit in units if after < unit.csn <= upto)
        agree(lambda t=table, a=after, u=upto: catalog.history.touched(t, a, u), rows, after < pruned - 1)
    _compare_next(catalog, both, pruned)
    _compare_marks(catalog, both, pruned)


def _compare_next(catalog: Catalog, both: Both, pruned: int) -> None:
    last = len(both.units)
    for tables in (NAMES[:1], NAMES[1:]):
        for after, number in itertools.product(range(max(pruned - 1, 0), last + 1), (1, 3)):
            touching = [
                unit.csn for unit in both.units[after:] if any(unit.rows.get(table, 0) for table in tables)
            ]
            expected = touching[number - 1] if len(touching) >= number else last
            assert catalog.history.next_csn_touching(tables, after, number) == expected


def _compare_marks(catalog: Catalog, both: Both, pruned: int) -> None:
    for site in SITES:
        parts = [(part, unit.csn) for unit in both.units for part in unit.parts if part.site == site]
        source_txids = catalog.history.source_txids(site)
        assert catalog.captured.sites()[site].version == len(parts)
        assert source_txids.log_position == (f"after {parts[-1][0].source_txid}" if parts else f"{site[0]}0")
        floor = both.history.version_at(site, pruned)
        kept = {part.source_txid: part.version for part, _ in parts if part.version >= max(floor, 1)}
        assert source_txids.versions([*range(-1, 25)]) == kept
        for least in range(-1, 25):
            assert source_txids.since(least) == {
                source_txid: each for source_txid, each in kept.items() if source_txid >= least
            }
        for source_txid in {-1, *(part.source_txid + near for part, _ in parts for near in (0, 1))}:
            expected = max((part.version for part, _ in parts if part.source_txid <= source_txid), default=0)
            found = _either(lambda m=source_txid, k=source_txids: k.latest(m))
            assert found == expected or (expected < floor and found is HistoryPruned)
        for version in range(len(parts) + 1):
            for seen in _sets(version):
                expected_set = both.history.in_csn(site, seen)
                found = _either(lambda s=site, v=seen: catalog.history.in_csn(s, v))
                below = min([version, *seen.holes]) < floor
                assert found == expected_set or (below and found is HistoryPruned)


@settings(max_examples=10, deadline=None)
@given(world=_worlds())
def test_differential_with_the_algebras_history(template: Template, world: tuple[Both, list[int]]) -> None:
    both, ends = world
    with template.copy() as catalog:
        _feed(catalog, both, [end for end in ends if end <= len(both.units)])
        _compare(catalog, both)


@pytest.mark.slow
@pytest.mark.parametrize("template", DEAR_ON_POSTGRES, indirect=True)
@settings(max_examples=25, deadline=None)
@given(world=_worlds(), data=st.data())
def test_differential_after_pruning(
    template: Template, world: tuple[Both, list[int]], data: st.DataObject
) -> None:
    """Prunes twice, captures in between: what is left is right, the rest is refused."""
    both, ends = world
    count = len(both.units)
    half = data.draw(st.integers(0, count))
    first = data.draw(st.integers(0, half))
    second = data.draw(st.integers(first, count))
    with template.copy() as catalog:
        _feed(catalog, Both(both.units[:half], both.history), [end for end in ends if end <= half])
        catalog.history.prune(first)
        capture(catalog, both.units[half:])
        _compare(catalog, both, first)
        catalog.history.prune(second)
        _compare(catalog, both, second)


@pytest.mark.slow
@pytest.mark.parametrize("template", DEAR_ON_POSTGRES, indirect=True)
def test_exhaustive_histories_of_three_units(template: Template) -> None:
    """Every way in which three units touch two sites, pruned at every csn."""
    choices = ({"x": 1}, {"y.t": 1}, {"x": 1, "y.t": 1})
    for plan in itertools.product(choices, repeat=3):
        both = Both()
        for number, sites in enumerate(plan):
            both.add(Plan(dict.fromkeys(sites, number), {"x.r": 1, "y.t": number + 1}))
        with template.copy() as catalog:
            capture(catalog, both.units)
            for upto in range(4):
                catalog.history.prune(upto)
                _compare(catalog, both, upto)


def test_pruning_beyond_the_end_keeps_the_last_unit(template: Template) -> None:
    both = Both()
    for number in range(3):
        both.add(Plan({"x": number}, {"x.r": 1}))
    with template.copy() as catalog:
        capture(catalog, both.units)
        catalog.history.prune(99)
        assert (catalog.history.last_csn(), catalog.history.commit_time(3)) == (3, 103.0)
        both.add(Plan({"x": 7}, {"x.r": 4}))
        capture(catalog, both.units[3:])
        _compare(catalog, both, 3)


def _unit(
    csn: int = 1, time: float = 1.0, version: int = 1, source_txid: int = 1, table: str = "x.r"
) -> Unit:
    return Unit(csn, time, (Part("x", version, source_txid),), {table: 1})


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([_unit(csn=2)], "csn 2 cannot follow csn 0"),
        ([_unit(), _unit(csn=1, version=2, source_txid=2)], "csn 1 cannot follow csn 1"),
        ([_unit(version=2)], "version 2 of site x cannot follow version 0"),
        ([_unit(), _unit(csn=2, version=1, source_txid=2)], "version 1 of site x cannot follow version 1"),
        ([_unit(), _unit(csn=2, time=0.5, version=2, source_txid=2)], "before the csn it follows"),
        ([_unit(time=float("nan"))], "before the csn it follows"),
        ([_unit(), _unit(csn=2, version=2)], "source txid 1 already"),
        ([_unit(table="x.unknown")], "table x.unknown is not captured"),
        ([Unit(1, 1.0, (Part("z", 1, 1),), {})], "site z is not captured"),
    ],
)
def test_units_that_do_not_fit_change_nothing(catalog: Catalog, units: list[Unit], words: str) -> None:
    catalog.captured.register(TABLES, {"x": ("x", "x0"), "y.t": ("y", "y0")})
    before = catalog.captured.sites()
    with pytest.raises(CatalogError, match=words):
        capture(catalog, units)
    assert (catalog.history.last_csn(), catalog.captured.sites()) == (0, before)
    # One by one, the second of two is refused as well.
    if len(units) == 2:
        capture(catalog, units[:1])
        with pytest.raises(CatalogError, match=words):
            capture(catalog, units[1:])
        assert catalog.history.last_csn() == 1


def test_questions_without_an_answer_are_refused(catalog: Catalog) -> None:
    catalog.captured.register(TABLES, {"x": ("x", "x0"), "y.t": ("y", "y0")})
    capture(catalog, [_unit()])
    with pytest.raises(CatalogError, match="version 2 of site x has not been captured"):
        catalog.history.in_csn("x", Seen(2))
    for question in (
        lambda: catalog.history.version_at("z", 1),
        lambda: catalog.history.source_txids("z"),
        lambda: catalog.history.touched("z.t", 0, 1),
        lambda: catalog.history.next_csn_touching(["x.r", "z.t"], 0, 1),
    ):
        with pytest.raises(CatalogError, match="not captured"):
            question()


@pytest.fixture
def catalog(template: Template) -> Iterator[Catalog]:
    with template.copy() as copy:
        yield copy


def test_oracle_the_last_change_and_the_first_csn_that_shows_a_place(catalog: Catalog) -> None:
    touched = [{"x.r": 1}, {"x.s": 2}, {"y.t": 1}, {"x.r": 1, "x.s": 1}, {}, {"x.s": 1}]
    sites = ["x", "x", "y.t", "x", "x", "x"]
    units = []
    for csn, (rows, site) in enumerate(zip(touched, sites, strict=True), 1):
        version = sites[:csn].count(site)
        part = Part(site, version, csn, f"0-1-{10 * csn}", place=100 * csn if site == "x" else 0)
        units.append(Unit(csn, 100.0 + csn, (part,), rows))
    capture(catalog, units)
    for names in (["x.r"], ["x.s"], ["y.t"], ["x.r", "y.t"], list(NAMES)):
        for upto in range(len(units) + 1):
            changed = [csn for csn in range(1, upto + 1) if set(names) & touched[csn - 1].keys()]
            assert catalog.history.last_csn_touching(names, upto) == max(changed, default=0), (names, upto)
            for after in range(upto + 1):
                number = sum(csn > after for csn in changed)
                assert catalog.history.units_touching(names, after, upto) == number, (names, after, upto)
    for place, csn in ((99, 0), (100, 1), (250, 2), (300, 2), (400, 4), (600, 6), (10_000, 6)):
        assert catalog.history.csn_reaching("x", place) == csn, place
    for number, csn in ((9, 0), (10, 1), (30, 2), (49, 4), (60, 6)):
        assert catalog.history.csn_reaching("x", lambda text, n=number: int(text[4:]) <= n) == csn, number
    with pytest.raises(HistoryPruned):
        # Captured before places were kept.
        catalog.history.csn_reaching("y.t", 5)
    catalog.history.prune(4)
    assert [catalog.history.last_csn_touching(["y.t"], csn) for csn in (3, 4, 6)] == [None, 3, 3]
    with pytest.raises(HistoryPruned):
        catalog.history.csn_reaching("x", 300)
    assert catalog.history.csn_reaching("x", 500) == 5
