"""Spark: the bag protocol on DataFrames. Only DataFrame and SQL APIs are used, so Spark Connect works."""

from rollview.spark.bag import COUNT, SparkBag

__all__ = ["COUNT", "SparkBag"]
