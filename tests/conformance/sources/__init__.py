"""One driver per source, so that one suite can write to all of them and look at them from outside."""
