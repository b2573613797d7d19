"""ORDER BY, LIMIT and OFFSET at the outside of a query, where they only order and cut its answer."""

from __future__ import annotations

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from rollview.sql.dialect import DIALECT

_CLAUSES = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET)


def split_order_and_limit(sql: str) -> tuple[str, str]:
    """The query without these clauses, and the clauses; both as they were written."""
    depth = 0
    for token in sqlglot.tokenize(sql, dialect=DIALECT):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type in _CLAUSES and not depth:
            return sql[: token.start].rstrip(), sql[token.start :].strip().rstrip(";").rstrip()
    return sql.strip().rstrip(";").rstrip(), ""


def orders_by_outputs(clauses: str, outputs: tuple[str, ...]) -> bool:
    """Whether the clauses name nothing but these columns, so that they can follow any query of them."""
    try:
        query = sqlglot.parse_one(f"SELECT * FROM _answer {clauses}", dialect=DIALECT)
    except SqlglotError:
        return False
    known = {name.lower() for name in outputs}
    columns = list(query.find_all(exp.Column))
    is_simple = not any(query.find_all(exp.Subquery, exp.AggFunc, exp.Window))
    return is_simple and all(not each.table and each.name.lower() in known for each in columns)
