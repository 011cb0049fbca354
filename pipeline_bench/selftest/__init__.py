"""The selftest: what is planted, how it is measured with the program itself, and what the measured comes to."""
