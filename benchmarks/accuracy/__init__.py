"""How well the tool's figures and verdicts agree with a truth that was planted."""
