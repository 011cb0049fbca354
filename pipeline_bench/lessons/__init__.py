"""Lessons: short guided runs. A lesson is a text file here, and the little Python that its exercise needs beside it.

`reading` reads the texts, `figures` is what they may ask of a comparison, `play` measures and shows. An exercise is
executed in a child process (``worker/call.py``): its module imports TensorFlow in functions only.
"""
