"""What models need, and whether they fit."""
