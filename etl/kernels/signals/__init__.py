"""Kernels that count what the quality signals need."""
