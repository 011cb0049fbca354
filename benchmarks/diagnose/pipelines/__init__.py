"""Pipelines as people write them, each a script with one planted fault and an expert's version of the same."""
