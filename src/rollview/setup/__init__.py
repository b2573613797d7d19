"""Bringing sources, lake and catalog in line with the views as defined: plan, execute, reload, recover.

Uses `maintain` and what is below.
Used by `run` and `project`.
"""
