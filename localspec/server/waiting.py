"""Waiting: how long a request has waited for its model, before anything of it is read."""

from contextvars import ContextVar

# Seconds: for texts of another model, and until its own was loaded. The request's task knows it.
waited_for_model: ContextVar[float] = ContextVar("waited_for_model", default=0.0)
