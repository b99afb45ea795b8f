"""Which worker runs what: queues of waiting tasks, handing them out, and moving them between workers.

Rule: work is spread by measured durations; rebalancing corrects what the estimate got wrong.
"""
