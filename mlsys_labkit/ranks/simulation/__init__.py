"""The virtual clock: programs of ranks, communication patterns, and pipeline schedules."""
