"""Labelled web pages, and what trains and measures the extraction of their main text."""
