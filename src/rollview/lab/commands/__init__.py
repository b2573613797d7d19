"""`rollview simulate` and `rollview demo --anomaly`: their options, and how results look in a terminal.

May use: simulator, tables, click and rich. Used by: `cli`, which registers them.
"""
