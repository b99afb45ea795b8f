"""`scaler_provision`: starts workers when there is work, and lets them go when there is none.

    scheduler ──Demand, Release──▶ core ──StartUnits, StopUnit─▶ adapters ──▶ processes, commands
              ◀─Units, ReleaseRequest─┘ ◀──────listings──────────────┘

Rules:
- `core/` has the policy, without I/O: a simulation runs it. The program has the connection and the adapters.
- What the scheduler knows is asked of it: how many slots are missing, and which units can go.
"""
