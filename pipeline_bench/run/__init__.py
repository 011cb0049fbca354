"""The parent's side of a trial: its process is started, followed, sampled and ended, and its record saved."""
