"""Spark: the bag protocol on DataFrames. Only DataFrame and SQL APIs are used, so Spark Connect works."""

from rollview.spark.bag import SparkBag
from rollview.spark.driver_side import COUNT

__all__ = ["COUNT", "SparkBag"]
