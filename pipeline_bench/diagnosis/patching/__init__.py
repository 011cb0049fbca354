"""The code to write for a fix: found in the user's files, changed as a tree that keeps every byte beside it."""
