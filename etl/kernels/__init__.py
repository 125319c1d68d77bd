"""Numba and numpy over the buffers of Arrow arrays: arrays in, arrays out, no file and no log."""
