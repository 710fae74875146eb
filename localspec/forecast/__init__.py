"""Forecasts: what drafting would gain, before any drafter is used."""
