"""Confined processes that start quickly: forked from a server that has imported what every lab imports."""
