"""localspec chat: a Textual app."""
