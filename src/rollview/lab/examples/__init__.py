"""The examples of the five papers: their data, their schedules and what they print, and how to replay them.

Lives here: a module for each paper. What a paper prints is written down, what is ours is computed by running.
May use: the simulator and what it stands on. Used by: `lab.tables`, `lab.commands`, tests.
"""
