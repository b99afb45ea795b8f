"""Which worker runs which task: queues of waiting tasks, dispatching them, and moving them between workers.

Rule: work is distributed by measured durations; rebalancing corrects wrong estimates.
"""
