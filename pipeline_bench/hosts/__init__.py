"""Several hosts at once: who they are, which of them run a trial together, and what their sessions come to.

Slurm or MPI start the ranks; a folder that they share is all that they have in common. `efficiency` and
`planning` are pure.
"""
