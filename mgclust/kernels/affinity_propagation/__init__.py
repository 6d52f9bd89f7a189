"""Similarities with the noise that breaks ties, and the messages of one iteration (the equations: `messages`)."""
