"""A module beside a script, which finds it as ``python train.py`` would."""

SCALE = 3
