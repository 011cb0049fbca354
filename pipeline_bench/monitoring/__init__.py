"""Watching a training job from within: how long its steps wait for input, told while it runs and kept as a session."""
