"""RoPE bounds: which numbers may scale rotations; far beyond what models have."""

MOST_SCALE = 1000
# A base is above the first.
LEAST_BASE, MOST_BASE = 1, 1e12
MOST_CONTEXT = 2**31 - 1
