"""A processor: a process that runs user code, one task at a time."""
