"""Sources make batches. One file, one class, one name."""
