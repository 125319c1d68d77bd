"""Kernels over hashes: equal keys, n-gram sets, MinHash, sorted sets."""
