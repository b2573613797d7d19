"""The tables of a project in the lake: stored views and their past, change logs.

Uses `views`, `lake` and `catalog`.
Used by `maintain` and all that reads views.
"""
