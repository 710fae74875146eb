"""Amounts in words: bytes as people write them."""


def amount(size: float) -> str:
    """Bytes, such as "4.70 GB", "81.5 MB" or "812 bytes" (1 GB is 1e9 bytes)."""
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    if size >= 1e6:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1e3 else f"{size:.0f} bytes"
