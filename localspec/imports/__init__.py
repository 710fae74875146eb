"""Models that other tools have on this disk: found, and linked."""
