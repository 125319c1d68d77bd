"""A recipe: YAML or Python in, a validated and fingerprinted `Recipe` out."""
