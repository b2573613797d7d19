"""CREATE TEMPORARY VIEW: a query with a name, not stored. It becomes a WITH of every view that reads it.

The text of a view is complete then: what the catalog records, and Spark runs to compare, needs no other text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from rollview.errors import ViewError
from rollview.planning.references import referenced_names
from rollview.sql.statement import declared, query_of
from rollview.sql.text.declaration import Declaration, with_query_alone
from rollview.sql.text.gate import each_token, on_one_line


def is_temporary(sql: str) -> bool:
    """Whether the text creates a view that is not stored."""
    declaration = declared(sql)
    return declaration is not None and declaration.is_temporary


def with_temporary_views(sql: str, temporary: Mapping[str, str]) -> str:
    """The text of a view with the queries of temporary views, by name in lower case, that it needs.

    They stay on the line where the query begins, so that all lines of the text keep their numbers.
    """
    needed = list(_needed(sql, temporary, ()))
    if not needed:
        return sql
    _check_names(sql, {name: temporary[name] for name in needed})
    tables = ", ".join(_common_table(temporary[name]) for name in needed)
    declaration = declared(sql)
    start = 0 if declaration is None else declaration.start
    first, second, *_ = each_token(with_query_alone(sql, start))
    if not first.is_word("with"):
        return f"{sql[: first.start]}WITH {tables} {sql[first.start :]}"
    last = second if second.is_word("recursive") else first
    end = last.start + len(last.text)
    return f"{sql[:end]} {tables},{sql[end:]}"


def _needed(sql: str, temporary: Mapping[str, str], above: tuple[str, ...]) -> Iterator[str]:
    """The temporary views that a text reads, and those that these read before them, each once."""
    seen: set[str] = set()
    for read in referenced_names(sql):
        name = read.lower()
        if name in above:
            shown = " → ".join((*above[above.index(name) :], name))
            hint = "a view cannot read itself, not even through others"
            raise ViewError(f"views form a cycle: {shown}", subject=name, hint=hint)
        if name in temporary:
            for each in (*_needed(temporary[name], temporary, (*above, name)), name):
                if each not in seen:
                    seen.add(each)
                    yield each


def _check_names(sql: str, needed: Mapping[str, str]) -> None:
    """Refuses a WITH of the view that has the name of what one of these reads, or of one of these."""
    taken = {name: name for name in needed}
    for name, text in needed.items():
        taken |= {read.lower(): name for read in referenced_names(text)}
    for cte in query_of(sql).find_all(exp.CTE):
        if cte.alias.lower() in taken:
            reader = taken[cte.alias.lower()]
            message = (
                f"`{cte.alias}` is a WITH of this view, and another thing to the temporary view `{reader}`"
            )
            raise ViewError(message, subject=cte.alias, hint="give the WITH another name")


def _common_table(sql: str) -> str:
    """The temporary view as a part of a WITH."""
    declaration = declared(sql)
    assert declaration is not None
    query = on_one_line(sql[declaration.start :]).rstrip("; ")
    return f"{_quoted(declaration.name)}{_columns(declaration)} AS ({query})"


def _columns(declaration: Declaration) -> str:
    names = ", ".join(_quoted(column.name) for column in declaration.columns)
    return f"({names})" if names else ""


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
