"""A script of the user's, or a function of theirs: loaded, and run up to where its training begins."""
