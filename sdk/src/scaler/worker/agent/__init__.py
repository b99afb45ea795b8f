"""The agent: the process of a worker that speaks with the scheduler. It runs no user code."""
