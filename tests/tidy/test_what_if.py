"""The pages say what the tests prove, in the tables "what if …"."""

from __future__ import annotations

import pytest

from pages.what_if import DOCS, TABLES, declared_lines, page_text


@pytest.mark.parametrize("page", sorted({table.page for table in TABLES.values()}))
def test_the_tables_are_what_the_tests_declare(page: str) -> None:
    hint = "python tests/pages/what_if.py writes them"
    assert (DOCS / page).read_text(encoding="utf-8") == page_text(page), hint


def test_every_line_has_its_place() -> None:
    for line in declared_lines():
        assert line.table in TABLES, line
        assert line.heading in TABLES[line.table].headings, line
        assert line.what and line.happens and "|" not in f"{line.what}{line.happens}{line.noticed}", line
    for name in TABLES:
        lines = [line for line in declared_lines() if line.table == name]
        assert lines and len({line.what for line in lines}) == len(lines), name
