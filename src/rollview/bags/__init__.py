"""Bags of stored and captured rows: at the driver as Arrow tables where they are few, else on Spark.

Lives here: `PlacedBag`, and what it computes with Arrow and what with Spark. Bags in memory are the lab's.
May use: `spark`, `rows` and `algebra`. Used by: `runtime` and all above it that computes with rows.
"""

from rollview.bags.placed_bag import DRIVER_ROWS, PlacedBag

__all__ = ["DRIVER_ROWS", "PlacedBag"]
