"""The gate: every text of SQL that reaches Spark passes here, views and queries alike.

First its words are judged (`rollview.sql.text.gate`). Then Spark itself is asked what it reads in the text,
by EXPLAIN, in a session of its own in which files cannot be named and variables are not replaced, over empty
stand-ins for the relations. The plan may have only the nodes that are listed here, and may name only the
relations that it is given; functions that are not Spark's must be declared; and nothing may depend on the
moment at which it is computed. A plan that is not understood is refused.

A text could contain what looks like a line of a plan. That can only add nodes, never hide one: each node
begins a line of its own, and all lines up to the last heading are judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import lru_cache
from itertools import count, dropwhile, pairwise
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rollview.errors import UnsupportedError, ViewError
from rollview.imports import deferred
from rollview.sql.spark_functions import ALLOWED, AS_BARE_WORDS, REFUSED, names_in
from rollview.sql.text.gate import (
    Kind,
    Token,
    called,
    check_expression,
    check_query,
    is_special_datetime,
    refused_function,
    special_datetimes,
    tokens,
)
from rollview.sql.text.splice import query_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

_numbers = count(1)

_NODES = names_in(
    """
    Project Filter Join LateralJoin Aggregate Distinct Deduplicate Sort GlobalLimit LocalLimit Offset Window
    LimitAll Union Intersect Except Expand Generate Pivot Unpivot SubqueryAlias View WithCTE CTE
    CTERelationDef CTERelationRef UnionLoop UnionLoopRef LocalRelation LogicalRDD OneRowRelation Range
    WithWindowDefinition
    Repartition RepartitionByExpression RebalancePartitions ResolvedHint PipeOperator ResolvedInlineTable
    UnresolvedHint UnresolvedHaving UnresolvedQualify UnresolvedInlineTable UnresolvedSubqueryColumnAliases
    UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedRelation UnresolvedOrderBy
    """
)
"""The nodes that a plan may have: those that compute rows from rows, and read nothing."""

_TABLE_FUNCTIONS = names_in(
    """
    range explode explode_outer posexplode posexplode_outer inline inline_outer json_tuple stack
    variant_explode variant_explode_outer
    """
)

_QUOTED_NAME = re.compile(r"`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)*")
_NODE = re.compile(r"^(?P<branch>(?:[ :]  )*(?:\+- |:- ))?'?(?P<name>[A-Za-z]\w*)(?P<rest>.*)$")
_RELATION = re.compile(r"^ \[(?P<name>\w+)\], \[\], false$")
_TABLE_FUNCTION = re.compile(r"^ \[(?P<name>\w+)\]")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b(?: \d\d:\d\d:\d\d(?:\.\d+)?)?")
_CAST_TEXT = re.compile(r"cast\((?P<text>[^()#]*) as (?:date|timestamp(?:_ntz|_ltz)?|time\(\d\))\)")

_SAME = {"session_user": "current_user"}
"""Functions with another name in Spark's plan."""

_EARLY, _LATE = "-18:00", "+18:00"
"""Zones between which it is always another day."""

_FOLDING = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("ConstantFolding", "ConvertToLocalRelation", "PropagateEmptyRelation")
)
"""Rules that compute constants: without them, `year('now')` still shows the day that it is the year of."""

_checkers: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_declared: WeakKeyDictionary[SparkSession, frozenset[str]] = WeakKeyDictionary()
_passed: set[tuple[str, str, frozenset[str]]] = set()
_checking: WeakKeyDictionary[SparkSession, Lock] = WeakKeyDictionary()
_MOST_PASSED = 10_000


def declare(spark: SparkSession, names: Iterable[str]) -> None:
    """Says which functions that are not Spark's may be called in this session."""
    _declared[spark] = frozenset(name.lower() for name in names)


def _checking_session(spark: SparkSession) -> SparkSession:
    """The session in which texts are judged: beside the given one, where Spark has that; or the same."""
    if spark not in _checkers:
        checker = spark
        with suppress(Exception):  # Spark Connect may not have it.
            checker = spark.newSession()
            for key, value in spark.conf.getAll.items():
                if key.startswith("spark.sql.") and checker.conf.isModifiable(key):
                    checker.conf.set(key, value)
        if checker is not spark:
            checker.conf.set("spark.sql.runSQLOnFiles", "false")
            checker.conf.set("spark.sql.variable.substitute", "false")
            checker.conf.set("spark.sql.debug.maxToStringFields", "100000")
            checker.conf.set("spark.sql.optimizer.excludedRules", _FOLDING)
        _checkers[spark] = checker
    return _checkers[spark]


def checked_expr(sql: str) -> Column:
    """An expression as a column, if it is one that may be computed."""
    check_expression(sql)
    return f.expr(sql)


def type_of(spark: SparkSession, sql: str, columns: Mapping[str, str]) -> str:
    """The type that Spark gives an expression over columns of these types, each by its quoted name."""
    check_expression(sql)
    named = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
    return spark.sql(f"SELECT {sql} AS x FROM (SELECT {named or '1'})").dtypes[0][1]


def location_of(spark: SparkSession, table: str) -> str | None:
    """Where a table of Spark's catalog is, given by its quoted name; None if there is none, or empty."""
    if not spark.catalog.tableExists(table):
        return None
    if not _QUOTED_NAME.fullmatch(table):
        raise UnsupportedError(f"{table} is not a quoted name", subject=table)
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").toArrow().to_pylist()
    # A column may be called Location, too; the rows about the table come after those of its columns.
    about = dropwhile(lambda row: row["col_name"] != "# Detailed Table Information", described)
    return next((row["data_type"] for row in about if row["col_name"] == "Location"), "")


@contextmanager
def answered(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The query as a frame; `relations` gives the frame for each name after FROM, in any case.

    Its temporary views are dropped at the end of the block.
    """
    names: dict[str, str] = {}
    by_name = {name.lower(): frame for name, frame in relations.items()}

    def name_of(relation: str) -> str:
        if relation.lower() not in by_name:
            raise ViewError(f"there is no view or captured table `{relation}`", subject=relation)
        if relation.lower() not in names:
            names[relation.lower()] = f"_rollview_relation_{next(_numbers)}"
        return names[relation.lower()]

    text = query_with(sql, name_of)
    with admitted(spark, text, {name: by_name[relation] for relation, name in names.items()}) as frame:
        yield frame


@contextmanager
def admitted(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """A query over temporary views of these names, once it is clear that it may be run."""
    _admit(spark, text, frames)
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield spark.sql(text)
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)


def _admit(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> None:
    """Judges a text once; relations are called after their place, so that the same text is known again."""
    stand_ins = {name: f"_rollview_stand_in_{place}" for place, name in enumerate(frames, start=1)}
    for name, stand_in in stand_ins.items():
        text = re.sub(rf"\b{name}\b", stand_in, text)
    schemas = {stand_ins[name]: frame.schema for name, frame in frames.items()}
    declared = _declared.get(spark, frozenset())
    known = (text, "\n".join(schema.simpleString() for schema in schemas.values()), declared)
    _check_session(spark, text)
    if known in _passed:
        return
    check_query(text)
    # A user-defined function is known where it was registered, and nowhere else.
    is_own = declared.isdisjoint(token.name for token in called(tokens(text)))
    checker = _checking_session(spark) if is_own else spark
    # A text that Spark reads slowly must not keep those of other sessions waiting.
    with _checking.setdefault(checker, Lock()):
        try:
            for name, schema in schemas.items():
                checker.createDataFrame([], schema).createOrReplaceTempView(name)
            plan = _check_plan(checker, text, frozenset(schemas), declared)
            if checker is not spark and _may_follow_the_clock(plan, text):
                _check_same_everywhere(checker, text)
        finally:
            for name in schemas:
                checker.catalog.dropTempView(name)
        if len(_passed) > _MOST_PASSED:
            _passed.clear()
        _passed.add(known)


def _check_plan(checker: SparkSession, text: str, relations: frozenset[str], declared: frozenset[str]) -> str:
    """The plan as Spark has analyzed it."""
    found = tokens(text)
    for token in called(found):
        if token.name not in ALLOWED | declared and token.name in own_functions(checker):
            reason = "it is not known whether its value follows from its arguments alone"
            raise refused_function(token.name, reason)
    explained = _explained(checker, text)
    plan = explained[: explained.rfind("== Optimized Logical Plan ==")]
    parsed, _, analyzed = plan.partition("== Analyzed Logical Plan ==\n")
    _check_nodes(plan, relations | _ctes(found))
    _check_functions(parsed, found, declared)
    if "Exception: " in analyzed:
        # Spark says best what is wrong; nothing is run by asking.
        checker.sql(text)
    _check_moment(found, analyzed)
    return analyzed


def _explained(checker: SparkSession, text: str) -> str:
    return str(checker.sql(f"EXPLAIN EXTENDED\n{text}").collect()[0][0])


def _check_session(spark: SparkSession, text: str) -> None:
    """Refuses texts that the settings of a given session make Spark read differently than the lexer.

    Variables are replaced inside of strings and comments, too; what is in double quotes may be a name.
    """
    if "${" in text and spark.conf.get("spark.sql.variable.substitute", "true") != "false":
        message = "${…} in a text would be replaced by a setting or a variable of the environment"
        hint = 'session.conf.set("spark.sql.variable.substitute", "false")'
        raise UnsupportedError(message, subject="${", hint=hint)
    quoted = "spark.sql.ansi.doubleQuotedIdentifiers"
    if '"' in text and spark.conf.get(quoted, "false") != "false":
        message = "text in double quotes would be read as a name"
        raise UnsupportedError(message, subject='"', hint=f'session.conf.set("{quoted}", "false")')


def _ctes(found: tuple[Token, ...]) -> frozenset[str]:
    """Names that a WITH may have given: plain ones, which cannot look like those of anything else."""
    names = {
        token.name
        for token, following in pairwise(found)
        if following.is_word("as") or following.is_symbol("(")
    }
    return frozenset(name for name in names if re.fullmatch(r"\w+", name))


def _check_nodes(plan: str, relations: frozenset[str]) -> None:
    is_root = False
    for line in plan.split("\n"):
        node = _NODE.match(line)
        if line == "== Parsed Logical Plan ==":
            is_root = True
        elif node is not None and (node["branch"] or is_root):
            _check_node(node["name"], node["rest"], relations)
            is_root = False
        elif is_root:
            raise _unknown(line)


def _check_node(name: str, rest: str, relations: frozenset[str]) -> None:
    if name not in _NODES:
        raise _unknown(name)
    if name == "UnresolvedRelation":
        relation = _RELATION.match(rest)
        if relation is None or relation["name"].lower() not in relations:
            message = f"Spark reads a relation in it that is not one of the project's: {rest.strip()[:80]}"
            raise UnsupportedError(message, subject=rest.strip(), hint="name a view or source.table")
    if name == "UnresolvedTableValuedFunction":
        function = _TABLE_FUNCTION.match(rest)
        if function is None or function["name"].lower() not in _TABLE_FUNCTIONS:
            message = f"Spark reads a table function in it that cannot be used: {rest.strip()[:80]}"
            raise UnsupportedError(message, subject=rest.strip(), hint="name a view or source.table")


def _unknown(node: str) -> UnsupportedError:
    message = f"Spark reads `{node[:80]}` in it, which neither a view nor a query may contain"
    return UnsupportedError(message, subject=node, hint="write a SELECT over views and tables of the project")


@lru_cache(maxsize=8)
def own_functions(spark: SparkSession) -> frozenset[str]:
    """The functions that are built into this Spark."""
    return frozenset(row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())


def _check_functions(parsed: str, found: tuple[Token, ...], declared: frozenset[str]) -> None:
    """Names that Spark takes for functions have to be known; an alias may be before a parenthesis, too."""
    for token in called(found):
        name = token.name
        if name not in ALLOWED and name not in declared and f"'{name}(" in parsed.lower():
            raise undeclared_function(token.text)


def undeclared_function(name: str) -> UnsupportedError:
    """The refusal of a function of which nobody has said what it is."""
    message = f"the function {name} is neither one of Spark's nor declared"
    entry = f"functions: {{{name}: {{deterministic: true}}}}"
    hint = f"if it is deterministic, write {entry} into the project file"
    return UnsupportedError(message, subject=name, hint=hint)


def _check_moment(found: tuple[Token, ...], analyzed: str) -> None:
    """Refuses what Spark would compute from the time or the user of this moment."""
    for token in special_datetimes(found):
        raise _of_this_moment(token.text)
    for token in found:
        meant = _SAME.get(token.name, token.name)
        if token.kind is Kind.WORD and token.name in AS_BARE_WORDS and f"{meant}(" in analyzed:
            raise refused_function(token.name, REFUSED[token.name])
    texts = {token.text.strip() for token in found if token.kind is Kind.STRING}
    for match in _CAST_TEXT.finditer(analyzed):
        if is_special_datetime(match["text"]) and match["text"].strip() in texts:
            raise _of_this_moment(match["text"])


def _may_follow_the_clock(analyzed: str, text: str) -> bool:
    """Whether a constant text may be read as a time: Spark knows words for some that depend on the day.

    Where it is read so need not be seen before the plan is optimized: `d BETWEEN 'yesterday' AND 'today'`.
    """
    has_text = any(token.kind is Kind.STRING for token in tokens(text))
    return has_text or re.search("date|time", analyzed, re.IGNORECASE) is not None


def _of_this_moment(text: str) -> UnsupportedError:
    return UnsupportedError(
        f"'{text}' means the time at which the view is computed, and no source reports that",
        subject=text,
        hint="compare with a column, or apply it when the view is read",
    )


def _check_same_everywhere(checker: SparkSession, text: str) -> None:
    """Computes constants where it is one day and where it is another: none may follow the clock."""
    zone = checker.conf.get("spark.sql.session.timeZone")
    plans: list[list[str]] = []
    try:
        for each in (_EARLY, _LATE):
            checker.conf.set("spark.sql.session.timeZone", each)
            plans.append(_DATE.findall(_explained(checker, text)))
    finally:
        checker.conf.set("spark.sql.session.timeZone", str(zone))
    early, late = plans
    near = {str(date.today() + timedelta(days=days)) for days in range(-3, 4)}
    for one, other in zip(early, late, strict=False):
        moved = one != other and one[:10] in near and other[:10] in near
        # A moment that a text gives with its zone is the same everywhere: another hour, the same second.
        if moved and (_is_day(one) == _is_day(other) is True or one[13:] != other[13:]):
            raise _of_this_moment(other)


def _is_day(shown: str) -> bool:
    return shown[10:] in ("", " 00:00:00")
