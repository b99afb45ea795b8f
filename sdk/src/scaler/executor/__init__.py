"""A cluster as an Executor of `concurrent.futures`; workers import `initialized` alone."""
