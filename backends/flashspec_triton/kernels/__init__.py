"""The device code. Everything here is Triton: compiled for a GPU, or interpreted on a CPU."""
