"""Kernels over hashes: equal keys, n-gram sets, MinHash, sets of shingles, sorted sets."""
