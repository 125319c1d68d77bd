"""Numba and NumPy functions over Arrow buffers: arrays in, arrays out, no I/O and no logging."""
