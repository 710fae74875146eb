"""Bounds: of numbers that are checked before anything large is imported."""

MOST_CONTEXT = 2**31 - 1
# Of ggml.
MOST_THREADS = 512

# Rotations are scaled within these; far beyond what models have.
MOST_SCALE = 1000
# A base is above the first.
LEAST_BASE, MOST_BASE = 1, 1e12
