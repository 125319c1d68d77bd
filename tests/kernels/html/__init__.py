"""Tests of the pass over HTML pages."""
