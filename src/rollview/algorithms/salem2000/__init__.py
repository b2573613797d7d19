"""salem2000: propagation queries, from the synchronous expansions to rolling propagation."""
