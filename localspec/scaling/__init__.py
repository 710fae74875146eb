"""Scaled models: the function of a small model at the cost of a large one."""
