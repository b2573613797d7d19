"""The lab: published algorithms run through millions of interleavings, and measured against each other.

Lives here: the simulator, the tables of the literature as measured, and the commands that run both.
May use: `sql`, `operators`, `algorithms` and `algebra`, so that what is tried is the code that ships.
Used by: `cli`, which registers the commands, tests and docs. Nothing else of the product imports it.
"""
