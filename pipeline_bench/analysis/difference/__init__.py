"""Two sessions -> what changed, whether it is fair to say so, and the gates."""
