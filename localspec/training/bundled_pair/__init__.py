"""How the bundled pair and its heads are made, from pages about commands."""
