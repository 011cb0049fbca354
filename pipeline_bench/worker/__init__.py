"""The child's side: one trial in a process of its own. Imports no rich, typer, pynvml or psutil."""
