"""Recordings of cores: the file, what writes it, and repeating it. Scheduler, worker and client share all of this."""
