"""Durations as people read them."""


def clock(seconds: float) -> str:
    """Return ``75`` as ``1:15``."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
