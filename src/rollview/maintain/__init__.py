"""The path of a transaction: capture, propagate, apply; loads, and what happens when one of them fails.

Uses `storage`, `views`, `algorithms` and `sources`.
Used by `setup`, `upkeep`, `run` and `answer`.
"""
