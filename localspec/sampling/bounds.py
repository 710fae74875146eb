"""Bounds: of settings that are checked before anything large is imported."""

MOST_TEMPERATURE = 100.0
# What llama.cpp counts in 32 bits.
MOST_WHOLE = 2**31 - 1
