"""Experiments: measurements for developers, each run with `python -m`."""
