"""Benchmarks: the numbers in the documentation come from here and nowhere else."""
