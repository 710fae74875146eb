"""Training: the scripts that make the bundled pair. The only room that imports torch."""
