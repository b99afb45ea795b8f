"""The state of a cluster for scaler_top, scaler_ui and /metrics, from the scheduler's status stream.

    frames ─▶ Feed ─▶ ClusterModel (what is), TaskHistory (what ran)

Rules:
- It only subscribes, and never sends the scheduler a request.
- `cluster_model` and `task_history` use no socket and no clock. They check what they receive, because it is external
  input.
- Everything is bounded: ended entities are kept for a while, up to a limit.
"""
