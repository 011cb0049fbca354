"""What the trials of a session come to: pure functions of their records."""
