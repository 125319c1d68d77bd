"""Kernels that split texts into words and sentences."""
