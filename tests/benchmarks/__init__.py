"""Tests of tools in ``benchmarks/`` on which shipped files depend."""
