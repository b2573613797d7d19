"""Sources: autonomous databases that are captured, asked and read, and never locked.

Uses `rows`, `errors` and the records of `algebra`; knows no views and no Spark.
Used by `runtime`, which opens them, and by `maintain` and `setup`, which know their contract alone.
"""
