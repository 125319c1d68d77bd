"""Kernels that rewrite texts by lines, paragraphs or sentences."""
