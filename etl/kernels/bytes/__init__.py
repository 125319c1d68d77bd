"""Kernels over the bytes, characters and line breaks of a text."""
