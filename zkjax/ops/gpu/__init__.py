"""Kernels for NVIDIA GPUs of the Hopper generation and later: one thread an element or a point, field operations as inline PTX."""
