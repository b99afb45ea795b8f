"""What scaler_top, scaler_ui and /metrics know of a cluster, from the scheduler's status stream.

    frames ─▶ Feed ─▶ Cluster (what is), TaskLog (what ran)

Rules:
- Nothing here asks the scheduler for anything: it listens.
- `cluster` and `task_log` know no socket and no clock; what they are told is checked, since it comes from outside.
- Everything is bounded: what has gone is kept for a while, and up to a limit.
"""
