"""The resources of a running project: its Spark session, the sites of its sources, threads, timers.

Uses `config`, `spark` and `sources`.
Used by every package above.
"""
