"""The project file, durations and schedules, and the results of drivers.

Uses nothing of the project but errors, events and secrets.
Used by every package above.
"""
