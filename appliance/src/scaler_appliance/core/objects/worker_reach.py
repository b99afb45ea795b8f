"""Which workers can fetch from which others: there may be a firewall between two of them, or a whole site.

    a fetch fails ──▶ the fetcher is wary: of what the scheduler has, it fetches only where it has before, or there

Rule: so a worker that does not reach others costs one time-out, and not one for each object. Of what the scheduler does
not have, it tries each holder: else all of its bytes would have to be relayed.
"""

from __future__ import annotations

from typing import Dict, Set


class WorkerReach:
    """Workers are sessions."""

    def __init__(self) -> None:
        self._wary: Set[int] = set()
        self._holders: Dict[int, Set[int]] = {}  # from which each fetcher has fetched
        self._fetchers: Dict[int, Set[int]] = {}  # the same by holder

    def succeed(self, fetcher: int, holder: int) -> None:
        """A worker has fetched an object from another one."""
        self._holders.setdefault(fetcher, set()).add(holder)
        self._fetchers.setdefault(holder, set()).add(fetcher)

    def fail(self, fetcher: int, holder: int) -> None:
        """A worker could not fetch an object from another one."""
        self._wary.add(fetcher)
        self._part(fetcher, holder)

    def is_wary(self, fetcher: int) -> bool:
        """Whether a worker could not fetch from one at some time."""
        return fetcher in self._wary

    def has_fetched(self, fetcher: int, holder: int) -> bool:
        """Whether a worker has fetched from another one, and not failed since."""
        return holder in self._holders.get(fetcher, ())

    def forget(self, worker: int) -> None:
        """The session of a worker has ended."""
        self._wary.discard(worker)
        for holder in list(self._holders.get(worker, ())):
            self._part(worker, holder)
        for fetcher in list(self._fetchers.get(worker, ())):
            self._part(fetcher, worker)

    def _part(self, fetcher: int, holder: int) -> None:
        for table, key, other in ((self._holders, fetcher, holder), (self._fetchers, holder, fetcher)):
            others = table.get(key)
            if others is not None:
                others.discard(other)
                if not others:
                    del table[key]

    def check_workers(self, workers: Set[int]) -> None:
        """Check that nothing is known of workers that are gone."""
        assert self._wary | self._holders.keys() | self._fetchers.keys() <= workers
