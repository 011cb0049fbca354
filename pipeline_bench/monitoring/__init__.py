"""Watching a training job from within: how long its steps wait for input, shown while it runs, saved as a session."""
