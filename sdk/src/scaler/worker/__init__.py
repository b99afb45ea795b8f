"""The worker: one agent, which has the connection to the scheduler, and the processors that run user code.

    agent/core/    the agent's decisions: events in, effects out
    agent/shell/   the agent's I/O: event loop, connection, processors' sockets, files, signals
    fork_server/   the process that forks processors
    processor/     the processes that run user code

Rules of this package:
- Nothing that the fork server or a processor imports may import an event loop (`frames`, `fork_server`, `processor`,
  `progress_page` and what they name); `agent` comes after the fork.
- The fork server imports the client only after a task has used one; this import starts no thread.
- This file and those of the packages below import nothing, so that importing one module brings no other.
"""
