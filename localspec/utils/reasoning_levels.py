"""Reasoning levels: how much a model is to reason, as chat templates and protocols name it."""

# From little to much; `none` is a switch for a template that has one.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# What templates with levels call them: gpt-oss and most others.
EFFORT = "reasoning_effort"
