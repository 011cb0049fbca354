"""How often the right stage is named, and how close the proven fixes come to what an expert makes of a pipeline."""
