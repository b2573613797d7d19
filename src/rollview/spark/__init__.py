"""Spark: the bag protocol on DataFrames. Only DataFrame and SQL APIs are used, so Spark Connect works."""

from rollview.spark.bag import SparkBag

__all__ = ["SparkBag"]
