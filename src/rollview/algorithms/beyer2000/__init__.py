"""beyer2000: immediate propagate, deferred apply, inside one database.

Lives here: IPDA and the effects of its one database, and what writers make for a warehouse.
May use: `algebra` and the steps that algorithms share. Used by: `registry`, `maintain` and the simulator.
"""
