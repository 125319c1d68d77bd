"""Files of settings that users write: read YAML within limits, and explain what is invalid."""
