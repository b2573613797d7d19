"""beyer2000: immediate propagate, deferred apply, inside one database."""
