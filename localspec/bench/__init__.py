"""Measuring: run each module with `python -m`."""
