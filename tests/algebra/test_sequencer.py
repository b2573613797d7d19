"""The sequencer under misordering, repetition, loss and restarts at any point."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from rollview.algebra.history import Change, Seen, Transaction, UnitOfWork
from rollview.algebra.sequencer import Gap, Sequencer
from rollview.errors import HistoryError
from rollview.lab.memory.history import History


def _local(source: str, version: int) -> Transaction:
    return Transaction(source, version, (Change(f"{source}.t", (version,), 1),))


def _part(source: str, version: int, name: str, *participants: str) -> Transaction:
    return Transaction(source, version, (), global_id=name, participants=participants)


def _random_scripts(generator: random.Random) -> dict[str, list[Transaction]]:
    """Scripts cut from one serial order, some transactions global."""
    scripts: dict[str, list[Transaction]] = {"x": [], "y": [], "z": []}
    for number in range(generator.randint(1, 9)):
        together = generator.sample("xyz", generator.choice([1, 1, 2, 3]))
        for source in together:
            version = len(scripts[source]) + 1
            if len(together) == 1:
                scripts[source].append(_local(source, version))
            else:
                scripts[source].append(_part(source, version, f"g{number}", *together))
    return scripts


@pytest.mark.parametrize("seed", range(300))
def test_oracle_nothing_lost_nothing_twice_nothing_reordered(seed: int) -> None:
    generator = random.Random(seed)
    scripts = _random_scripts(generator)
    kept: list[UnitOfWork] = []
    sequencer = Sequencer.resume(scripts, kept)
    total = sum(map(len, scripts.values()))
    under_way = [transaction for script in scripts.values() for transaction in script]
    now = 0.0
    while sum(len(unit.parts) for unit in kept) < total:
        now += generator.choice([1.0, 1.0, -5.0])
        if generator.random() < 0.15:
            # The warehouse stops here. Held-back messages are gone; the sources send what follows.
            sequencer = Sequencer.resume(scripts, kept)
            under_way = [t for s, script in scripts.items() for t in script[sequencer.position(s) :]]
        elif not under_way:
            for source, script in scripts.items():
                sequencer.heard_of(source, len(script))
            gaps = sequencer.gaps()
            assert gaps, "nothing is under way, nothing is missing, and yet there is no end"
            under_way = [t for gap in gaps for t in scripts[gap.source][gap.first - 1 : gap.last]]
        else:
            message = under_way.pop(generator.randrange(len(under_way)))
            if generator.random() < 0.2:
                under_way.append(message)
            if generator.random() < 0.8:
                kept += sequencer.receive(message, now)
    assert [unit.csn for unit in kept] == list(range(1, len(kept) + 1))
    for source, script in scripts.items():
        assert [part for unit in kept for part in unit.parts if part.source == source] == script
    for unit in kept:
        names = {part.global_id for part in unit.parts}
        assert len(names) == 1
        assert {part.source for part in unit.parts} == set(unit.parts[0].participants) or len(unit.parts) == 1
    times = [unit.commit_time for unit in kept]
    assert times == sorted(times), "the clock ran backwards"
    assert sequencer.gaps() == []


def test_a_gap_is_noticed_and_closed() -> None:
    sequencer = Sequencer({"x": 0})
    assert sequencer.receive(_local("x", 1), 1.0)
    assert sequencer.receive(_local("x", 4), 2.0) == []
    assert sequencer.gaps() == [Gap("x", 2, 3)]
    assert sequencer.receive(_local("x", 3), 3.0) == []
    assert sequencer.gaps() == [Gap("x", 2, 2)]
    assert [unit.parts[0].version for unit in sequencer.receive(_local("x", 2), 4.0)] == [2, 3, 4]


def test_a_lost_last_message_is_noticed_through_what_an_answer_saw() -> None:
    sequencer = Sequencer({"x": 2})
    assert sequencer.gaps() == []
    sequencer.heard_of("x", 4)
    assert sequencer.gaps() == [Gap("x", 3, 4)]


def test_a_part_holds_back_what_follows_it_at_its_source() -> None:
    sequencer = Sequencer({"x": 0, "y": 0})
    assert sequencer.receive(_part("x", 1, "g", "x", "y"), 1.0) == []
    assert sequencer.receive(_local("x", 2), 1.0) == []
    assert sequencer.waiting() == {"g": ("y",)}
    units = sequencer.receive(_part("y", 1, "g", "x", "y"), 1.0)
    assert [len(unit.parts) for unit in units] == [2, 1]
    assert sequencer.waiting() == {}


def test_two_different_reports_of_one_version_are_refused() -> None:
    sequencer = Sequencer({"x": 0})
    sequencer.receive(_local("x", 2), 1.0)
    with pytest.raises(HistoryError, match="reported version 2 twice"):
        sequencer.receive(Transaction("x", 2, ()), 1.0)


def test_global_transactions_that_cross_are_one_unit_of_work() -> None:
    sequencer = Sequencer({"x": 0, "y": 0})
    assert sequencer.receive(_part("x", 1, "g", "x", "y"), 1.0) == []
    assert sequencer.receive(_part("y", 1, "h", "x", "y"), 1.0) == []
    assert sequencer.receive(_local("y", 2), 1.0) == []
    assert sequencer.receive(_part("x", 2, "h", "x", "y"), 1.0) == []
    assert sequencer.waiting() == {"g": ("y",), "h": ()}
    (unit,) = sequencer.receive(_part("y", 3, "g", "x", "y"), 1.0)
    assert [(part.source, part.version) for part in unit.parts] == [
        ("x", 1), ("x", 2), ("y", 1), ("y", 2), ("y", 3),
    ]  # fmt: skip
    assert sequencer.waiting() == {}


@pytest.mark.parametrize("seed", range(300))
def test_oracle_crossing_units_are_whole_and_no_larger_than_needed(seed: int) -> None:
    generator = random.Random(seed)
    scripts = _random_scripts(generator)
    for source, script in scripts.items():
        generator.shuffle(script)
        scripts[source] = [replace(each, version=n) for n, each in enumerate(script, 1)]
    sequencer = Sequencer(dict.fromkeys(scripts, 0))
    messages = [transaction for script in scripts.values() for transaction in script]
    generator.shuffle(messages)
    units = [unit for message in messages for unit in sequencer.receive(message, 1.0)]
    done = dict.fromkeys(scripts, 0)
    for unit in units:
        ends = dict(done)
        for part in unit.parts:
            assert part.version == ends[part.source] + 1
            ends[part.source] = part.version
        assert _is_closed(scripts, ends)
        between = product(*(range(done[source], ends[source] + 1) for source in scripts))
        cuts = [dict(zip(scripts, each, strict=True)) for each in between]
        assert [cut for cut in cuts if _is_closed(scripts, cut)] in ([done, ends], [ends, done])
        done = ends
    assert done == {source: len(script) for source, script in scripts.items()}


def _is_closed(scripts: dict[str, list[Transaction]], ends: dict[str, int]) -> bool:
    """Whether every global transaction lies wholly before these versions, or wholly behind them."""
    inside: dict[str, set[bool]] = {}
    for source, script in scripts.items():
        for each in script:
            if each.global_id:
                inside.setdefault(each.global_id, set()).add(each.version <= ends[source])
    return all(len(sides) == 1 for sides in inside.values())


def test_an_id_that_is_used_twice_names_one_transaction_after_the_other() -> None:
    """Nothing that somebody announces may end the sequencer."""
    sequencer = Sequencer({"x": 0, "y": 0})
    assert sequencer.receive(_part("x", 1, "g", "x", "y"), 1.0) == []
    assert sequencer.receive(_part("x", 2, "g", "x", "y"), 1.0) == []
    assert sequencer.waiting() == {"g": ("y",)}
    (first,) = sequencer.receive(_part("y", 1, "g", "x", "y"), 2.0)
    assert [(part.source, part.version) for part in first.parts] == [("x", 1), ("y", 1)]
    assert sequencer.waiting() == {"g": ("y",)} and sequencer.present("g") == ("x",)
    (second,) = sequencer.receive(_part("y", 2, "g", "x", "y"), 3.0)
    assert [(part.source, part.version) for part in second.parts] == [("x", 2), ("y", 2)]
    assert sequencer.waiting() == {} and sequencer.present("g") == ()


@pytest.mark.parametrize("seed", range(200))
def test_whatever_ids_are_announced_every_source_keeps_its_order(seed: int) -> None:
    """Ids that come several times, name sources that never answer, or different ones at each source."""
    generator = random.Random(seed)
    sequencer, units = Sequencer(dict.fromkeys("xyz", 0)), list[UnitOfWork]()
    queues = {
        source: [
            _local(source, version)
            if generator.random() < 0.4
            else _part(source, version, generator.choice("gh"), *{source, *generator.sample("xyz", 2)})
            for version in range(1, 7)
        ]
        for source in "xyz"
    }
    while any(queues.values()):
        source = generator.choice([name for name, queue in queues.items() if queue])
        units += sequencer.receive(queues[source].pop(0), 0.0)
        for name, missing in sequencer.waiting().items():
            assert not set(missing) & set(sequencer.present(name))
    for source in "xyz":
        versions = [part.version for unit in units for part in unit.parts if part.source == source]
        assert versions == list(range(1, len(versions) + 1))
    # For whatever is held up, the missing part is known.
    is_held = any(sequencer.position(source) < 6 for source in "xyz")
    assert any(sequencer.waiting().values()) == is_held


def test_what_lies_between_crossing_transactions_and_waits_is_named() -> None:
    sequencer = Sequencer(dict.fromkeys("xyz", 0))
    for part in (
        _part("x", 1, "g", "x", "y"),
        _part("x", 2, "k", "x", "z"),
        _part("x", 3, "h", "x", "y"),
        _part("y", 1, "h", "x", "y"),
        _part("y", 2, "g", "x", "y"),
    ):
        assert sequencer.receive(part, 1.0) == []
    assert {name: missing for name, missing in sequencer.waiting().items() if missing} == {"k": ("z",)}


def test_an_answer_between_crossing_parts_has_no_csn() -> None:
    history = History({}, ["x", "y"])
    history.append(UnitOfWork(1, 1.0, (_local("x", 1),)))
    history.append(UnitOfWork(2, 1.0, (_local("x", 2), _local("x", 3), _local("y", 1))))
    history.append(UnitOfWork(3, 1.0, (_local("x", 4),)))
    assert history.in_csn("x", Seen(3)) == Seen(2)
    assert history.in_csn("x", Seen(4, frozenset({2, 3}))) == Seen(3, frozenset({2}))
    for split in (Seen(2), Seen(4, frozenset({2})), Seen(3, frozenset({2}))):
        with pytest.raises(HistoryError, match="part of a unit of work"):
            history.in_csn("x", split)
