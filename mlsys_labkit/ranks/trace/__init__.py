"""The trace of a run: its events, and what can be read from them."""
