"""How the bundled pair and its heads were made, from pages about commands."""
