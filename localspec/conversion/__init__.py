"""Conversion: published heads as GGUFs for one target, and heads with a smaller vocabulary."""
