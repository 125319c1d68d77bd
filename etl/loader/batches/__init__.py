"""Turn tokens into batches of tensors."""
