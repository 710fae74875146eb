"""The chat of localspec, a Textual app. Its first screen is still to be built."""
