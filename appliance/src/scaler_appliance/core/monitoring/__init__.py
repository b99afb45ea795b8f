"""What monitors and clients can find out: status, runs of tasks, explanations, information about the cluster.

Rule: nothing here decides what happens to a task. Without subscribers it costs a flag.
"""
