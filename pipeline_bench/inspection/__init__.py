"""What is found of a pipeline in the first trial of a diagnosis: what its stages cost, what its Python spends."""
