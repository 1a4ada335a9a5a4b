"""Estimate of a kernel's time on a named GPU, from the simulator's counters: a model, never a measurement or a mark.

launch.py profiles a launch and compiles its kernel; machine_code.py estimates the instructions that warps execute, and
requests.py the cycles of their requests; estimate.py puts the time together from the figures in gpus.toml, and
time_estimate.py shows it.
"""
