"""The content of a view's blocks computed from complete relations, on the bags that the deltas use.

The first load uses it; `verify` deliberately does not, but has Spark run the view's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.expression import Column
from rollview.algebra.join_graph import connected_order
from rollview.algebra.node import Block, Node
from rollview.algebra.view import View
from rollview.algorithms.source_evaluate import join_known
from rollview.errors import ViewError
from rollview.imports import deferred
from rollview.spark.data_errors import is_data_error, is_refused_query, message_of
from rollview.spark.gate import answered

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import DataFrame, SparkSession
else:
    spark_errors = deferred("pyspark.errors")


B = TypeVar("B", bound=Bag)


def block_contents(root: Node, tables: Mapping[str, B]) -> Iterator[B]:
    """The content of each block below a node, left to right; `tables` has the rows of every base table."""
    for block in root.blocks:
        yield _content(block, [tables[relation.table.qualified] for relation in block.relations])


def with_stages(
    view: View, tables: Mapping[str, B], kept: Callable[[B], B] = lambda rows: rows
) -> dict[str, B]:
    """The rows of base tables, and of the view's stages computed from them, each `kept` for those above."""
    known = dict(tables)
    for stage in view.parts[:-1]:
        known[stage.name] = kept(stage.root.rows_of(block_contents(stage.root, known)))
    return known


def _content(block: Block, relations: Sequence[B]) -> B:
    """The block's rows; those of its relations have the tables' own columns."""
    known = {
        position: relations[position].project(
            [
                (inside, Column(own))
                for own, inside in zip(relation.table.columns, relation.columns, strict=True)
            ]
        )
        for position in connected_order(block)
        for relation in (block.relations[position],)
    }
    joined: B = join_known(block, known)  # type: ignore[assignment]
    return joined.project(block.projection)


# A view's own text, run by Spark over given relations: what the view is by definition.
#
# It shares nothing with rollview's algebra, and of its parser only the places of the relations' names, so
# that it can judge what the algebra made.


@contextmanager
def view_sql(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The view's query as a frame; `relations` gives the frame for each name after FROM, in any case.

    The frame is good inside the block only. What Spark does not accept is a mistake in the view.
    """
    with ExitStack() as stack:
        try:
            frame = stack.enter_context(answered(spark, sql, relations))
        except (spark_errors.ParseException, spark_errors.AnalysisException) as error:
            raise ViewError(f"Spark does not accept it: {_reason(error)}") from error
        except Exception as error:
            # Nothing has been computed yet but constants: what is wrong is the text.
            if not (is_refused_query(error) or is_data_error(error)):
                raise
            raise ViewError(f"Spark does not accept it: {message_of(error)}") from error
        yield frame


def _reason(error: Exception) -> str:
    """The first sentence of Spark's message, without its codes."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if line.startswith("[") and "]" in line:
        line = line.split("]", 1)[1].strip()
    return line.split(" SQLSTATE")[0].rstrip(".")
