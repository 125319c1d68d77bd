"""Kernels that classify texts with fastText models."""
