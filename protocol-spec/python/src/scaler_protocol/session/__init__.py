"""What every client and worker does the same way within a session: starting, keeping and ending it, ids, fetching.

Rules: sans-IO. Time, messages and randomness are arguments; what has to be done is returned as effects.
"""
