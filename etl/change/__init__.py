"""Change the recipe of a lake: decide again what it has stored, and read only what that does not say."""
