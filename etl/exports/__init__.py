"""Export a version of a token table to the formats of other libraries."""
