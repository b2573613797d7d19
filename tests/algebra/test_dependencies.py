"""Functional dependencies of blocks, on the running examples of sze2000 and on hand-made corner cases."""

from __future__ import annotations

import pytest

from rollview.algebra.dependencies import closure, determines, keeps_keys, refers, view_key
from rollview.algebra.node import Block
from rollview.algebra.relation import ForeignKey, Table
from rollview.planning import parse_view

# sze2000 report, Example 6: R1(A, B, C), R2(C, D, E), R3(E, F, G); keys A, C and E.
R1 = Table("one", "r1", ("a", "b", "c"), ("a",), (ForeignKey(("c",), "two.r2"),))
R2 = Table("two", "r2", ("c", "d", "e"), ("c",), (ForeignKey(("e",), "two.r3"),))
R3 = Table("two", "r3", ("e", "f", "g"), ("e",))
LINE = Table("shop", "line", ("order_id", "nr", "product"), ("order_id", "nr"))
PART = Table(
    "shop",
    "part",
    ("id", "order_id", "nr", "size"),
    ("id",),
    (ForeignKey(("order_id", "nr"), "shop.line"),),
)
NOTE = Table("shop", "note", ("order_id", "text"))
TABLES = (R1, R2, R3, LINE, PART, NOTE)

CHAIN = "FROM one.r1 r1 JOIN two.r2 r2 ON r1.c = r2.c JOIN two.r3 r3 ON r2.e = r3.e"


def block_of(sql: str) -> Block:
    root = parse_view(sql, TABLES).root
    assert isinstance(root, Block)
    return root


def test_closure_follows_keys_and_edges() -> None:
    block = block_of(f"SELECT r1.a {CHAIN}")
    assert closure(block, ["r1.a"]) == {column for relation in block.relations for column in relation.columns}
    assert closure(block, ["r3.e"]) == {"r3.e", "r3.f", "r3.g", "r2.e"}
    assert closure(block, ["r1.b", "r2.d"]) == {"r1.b", "r2.d"}
    assert closure(block, []) == frozenset()


def test_a_part_of_a_key_fixes_nothing() -> None:
    block = block_of("SELECT product FROM shop.line")
    assert closure(block, ["line.nr"]) == {"line.nr"}
    assert closure(block, ["line.nr", "line.order_id"]) == set(block.relations[0].columns)


def test_a_constant_is_known_from_the_start() -> None:
    block = block_of("SELECT product FROM shop.line WHERE 3 = nr")
    assert closure(block, []) == {"line.nr"}
    assert closure(block, ["line.order_id"]) == set(block.relations[0].columns)
    for condition in ("nr > 3", "nr = 3 OR nr = 4", "nr = order_id + 1", "nr <> 3"):
        assert closure(block_of(f"SELECT product FROM shop.line WHERE {condition}"), []) == frozenset()


def test_equal_columns_of_one_relation_fix_each_other() -> None:
    block = block_of("SELECT product FROM shop.line WHERE nr = order_id")
    assert closure(block, ["line.nr"]) == set(block.relations[0].columns)


def test_determines_goes_along_the_chain_and_not_back() -> None:
    block = block_of(f"SELECT r1.a {CHAIN}")
    directions = [(i, j) for i in range(3) for j in range(3) if determines(block, i, j)]
    assert directions == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_determines_needs_both_keys() -> None:
    block = block_of(
        "SELECT l.nr FROM shop.line l JOIN shop.note n ON l.order_id = n.order_id AND l.product = n.text"
    )
    assert closure(block, block.relations[0].key) >= set(block.relations[1].columns)
    assert not determines(block, 0, 1)
    assert not determines(block, 1, 0)


@pytest.mark.parametrize(
    ("outputs", "key"),
    [
        ("r1.a, r2.d, r3.f", ("a",)),
        ("r3.f, r2.c, r1.a, r3.e", ("a",)),
        ("r1.b, r2.c, r3.f", None),
        ("r1.a + 0 AS a, r2.c, r3.e", None),
        ("r1.a AS x, r1.a AS y", ("x",)),
    ],
)
def test_view_key(outputs: str, key: tuple[str, ...] | None) -> None:
    assert view_key(block_of(f"SELECT {outputs} {CHAIN}")) == key


def test_view_key_of_several_columns() -> None:
    product = "FROM shop.line l CROSS JOIN one.r1 r"
    assert view_key(block_of(f"SELECT l.product, r.b, l.nr, r.a, l.order_id {product}")) == (
        "nr",
        "a",
        "order_id",
    )
    assert view_key(block_of(f"SELECT l.nr, r.a {product} WHERE l.order_id = 5")) == ("nr", "a")
    assert view_key(block_of(f"SELECT l.nr AS n, r.a {product}")) is None


def test_view_key_takes_equal_columns_for_a_key() -> None:
    sql = "FROM shop.part p JOIN one.r1 r ON p.size = r.a"
    assert view_key(block_of(f"SELECT p.id {sql}")) == ("id",)
    # Each of size and a fixes r's row, but only id fixes p's.
    assert view_key(block_of(f"SELECT p.size, r.b {sql}")) is None


def test_view_key_prefers_columns_of_declared_keys() -> None:
    ring = "FROM one.r1 x JOIN one.r1 y ON x.b = y.a AND y.b = x.a"
    assert view_key(block_of(f"SELECT x.b AS p, y.a AS q {ring}")) == ("q",)
    assert view_key(block_of(f"SELECT x.b AS p {ring}")) == ("p",)


def test_view_key_can_be_empty_and_needs_every_key() -> None:
    assert view_key(block_of("SELECT b FROM one.r1 WHERE a = 1")) == ()
    assert view_key(block_of("SELECT l.order_id, l.nr FROM shop.line l, shop.note n")) is None


def test_keeps_keys() -> None:
    assert keeps_keys(block_of(f"SELECT r1.a, r2.c, r3.e AS last {CHAIN}"))
    # r1.c is equal to r2.c, but it is not r2's key.
    assert not keeps_keys(block_of(f"SELECT r1.a, r1.c, r3.e {CHAIN}"))
    assert not keeps_keys(block_of("SELECT order_id, product FROM shop.line"))
    assert not keeps_keys(block_of("SELECT order_id, text FROM shop.note"))


def test_refers_along_a_foreign_key_only() -> None:
    block = block_of(f"SELECT r1.a {CHAIN}")
    assert [(i, j) for i in range(3) for j in range(3) if refers(block, i, j)] == [(0, 1), (1, 2)]
    backwards = block_of("SELECT r1.a FROM two.r2 r2 JOIN one.r1 r1 ON r1.c = r2.c")
    assert refers(backwards, 1, 0)
    assert not refers(backwards, 0, 1)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("p.order_id = l.order_id AND l.nr = p.nr", True),
        ("p.order_id = l.order_id", False),
        ("p.order_id = l.nr AND p.nr = l.order_id", False),
        ("p.order_id = l.order_id AND p.nr = l.nr AND p.size = l.product", False),
        ("p.id = l.order_id AND p.nr = l.nr", False),
    ],
)
def test_refers_needs_exactly_the_columns_of_the_foreign_key(condition: str, expected: bool) -> None:
    block = block_of(f"SELECT p.id FROM shop.part p JOIN shop.line l ON {condition}")
    assert refers(block, 0, 1) is expected


def test_refers_is_about_the_referenced_table() -> None:
    assert not refers(block_of("SELECT x.a FROM one.r1 x JOIN two.r3 y ON x.c = y.e"), 0, 1)
