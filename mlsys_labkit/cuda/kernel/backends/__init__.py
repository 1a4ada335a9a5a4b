"""The two places where a kernel runs: the simulator and a real GPU."""
