"""Stand-ins for what a test machine may not have."""
