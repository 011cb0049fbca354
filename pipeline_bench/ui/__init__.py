"""What a user sees while a session runs: a live screen, or plain lines where there is no terminal."""
