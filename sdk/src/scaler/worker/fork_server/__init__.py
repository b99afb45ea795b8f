"""The fork server: the process that forks processors, watches them, and cleans up after the agent."""
