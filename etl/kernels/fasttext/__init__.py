"""Kernels that classify texts with fastText models."""

from typing import Final

LABEL_PREFIX: Final = "__label__"
"""What tokens begin with that are labels, and not words. Models do not store it, though it can be set."""
