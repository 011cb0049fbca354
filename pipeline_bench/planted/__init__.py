"""What a trial is made of whose truth is known: plug-ins with planted delays or faults, a bare step, kernels on a GPU.

The selftest and the benchmarks of the program plant with it. The plug-ins have names like all others, but are in no
list that a user is offered.
"""
