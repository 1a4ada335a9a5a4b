"""``labkit explain``, ``report`` and ``similarity``: one answer explained, and a class's answers compared."""
