"""The simulator: a runtime in which the order of all events is a choice."""
