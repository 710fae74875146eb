"""Training: drafters for a target, by `localspec train`. The only room that imports torch."""
