"""Tasks that need results of other tasks: nodes of graphs, and single tasks that name their predecessors.

Rule: a task waits here until its last predecessor has succeeded; then it becomes a task of a batch like all others.
"""
