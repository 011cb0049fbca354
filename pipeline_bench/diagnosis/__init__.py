"""Why a user's pipeline is slow, what to try, whether it helped: pure, from what the trials left in the session."""
