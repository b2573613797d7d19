"""Rows on their way between sources, lake and Spark: Arrow tables, or Parquet files yet to be read."""

from rollview.rows.rows import ColumnRanges, FileScan, Rows, ScanFile
from rollview.rows.types import arrow_schema, arrow_type, spark_type

__all__ = ["ColumnRanges", "FileScan", "Rows", "ScanFile", "arrow_schema", "arrow_type", "spark_type"]
