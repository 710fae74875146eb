"""What the Hub has, and its cache on this disk."""
