"""Whether a scheduler works: `scaler_scheduler --self-test` starts one and runs tasks through it, `scaler_scheduler
ping` greets one that runs.

Rule: they speak to a scheduler as any peer does, with the protocol package alone.
"""
