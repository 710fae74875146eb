"""Server: one engine behind the protocols that local tools speak."""
