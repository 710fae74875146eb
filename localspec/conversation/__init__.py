"""Conversations with a model: turns, sessions, and the answers as they are generated."""
