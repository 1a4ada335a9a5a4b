"""Tests of the benchmarks that no machine of the project can run as a whole."""
