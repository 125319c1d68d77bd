"""Views of a token table: which documents are read, how often, and which of their columns."""
