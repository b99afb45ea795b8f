"""Tasks: how they are accepted, which states they pass through, and how they end.

    Task ─▶ acceptance ─▶ batches ─▶ (placement) ─▶ worker_reports ─▶ task_outcomes ─▶ client_results
                                          ▲               cancellation ──┘
                                       requeue

Rule: every change of a task's state goes through `task_states.apply`.
"""
