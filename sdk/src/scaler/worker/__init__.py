"""The worker: one agent per host, which serves the scheduler, and the processors that run user code.

Rules of this package:
- Nothing that the nursery or a processor imports may import an event loop (`frames`, `nursery`,
  `processor`, `chunk_runner`, `shared_progress` and what they name); `agent`, `connection` and `program` come
  after the fork.
- Only when a task has used a client does the nursery import that (see `Agent._expect_clients`), which makes
  no thread either.
- This file imports nothing, so that importing one module of the package brings no other.
"""
