"""Decoding on buffers that stay where they are: whole steps as CUDA graphs, results read one step late."""
