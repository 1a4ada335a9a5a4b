"""Private plumbing that every package may import: machine limits, units, probes, notebook cells, release manifest."""
