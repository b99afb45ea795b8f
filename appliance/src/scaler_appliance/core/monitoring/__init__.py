"""Information for monitors and clients: status, runs of tasks, explanations, the size of the cluster.

Rule: monitoring never affects tasks. Without subscribers it costs checking a flag.
"""
