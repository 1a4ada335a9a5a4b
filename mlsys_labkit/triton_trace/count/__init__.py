"""Counts and findings of a launch, from the accesses that its recorder kept."""
