"""What scaler_top, scaler_ui and /metrics know of a cluster, from the scheduler's status stream.

    frames ─▶ Feed ─▶ ClusterModel (what is), TaskHistory (what ran)

Rules:
- Nothing here sends the scheduler a request: it subscribes.
- `cluster_model` and `task_history` know no socket and no clock. They check what they receive: it comes from outside.
- Everything is bounded: what has ended is kept for a while, and up to a limit.
"""
