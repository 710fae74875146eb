"""Models by name, pairs of target and drafter, and which drafters fit."""
