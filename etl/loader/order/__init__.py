"""Which samples an epoch has, and in which order: arithmetic, no files."""
