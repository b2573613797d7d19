"""Spark itself: sessions, the gate for every text of SQL, rows as DataFrames, tasks, and errors read.

Only DataFrame and SQL APIs are used, so Spark Connect works.
May use: `rows`, `sql` and `algebra`. Used by: `bags`, `runtime` and the packages above.
"""
