"""The memory that models and their caches take, and whether it is free."""
