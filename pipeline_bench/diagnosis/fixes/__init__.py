"""Changes that may make a pipeline faster, one file each, found by the name of the file."""
