"""Tests of how input files are recognized, with a cluster inside this process."""
