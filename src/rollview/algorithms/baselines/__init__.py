"""What the papers compare themselves with: conventional maintenance, ECA, SWEEP and their variants."""
