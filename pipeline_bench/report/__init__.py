"""Reports turn a session into text; they measure nothing, decide nothing and never import the UI."""
