"""Estimate what other thresholds would keep."""
