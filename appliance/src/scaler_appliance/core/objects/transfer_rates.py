"""How fast workers get bytes from each other, measured by what they have fetched.

    tickets       ▼ first            ▼ second
    transfers     |=================| 80 MB
                                     |=== 160 MB ==|
    counted       |---- 80 MB ------|--- 160 MB ---|      240 MB in 1.2 s: this holder sends 200 MB/s

Rules:
- The rate is that of all transfers from a holder together, while there are any: each takes a share of its link, and a
  task gets all that it needs of a holder at the same time.
- An object of less than a part says more about the way there and back than about the link, and does not count.
- Bytes and seconds are added up separately, and the older they are, the less they count: so a large transfer counts for
  more than a small one, and a link that changes is known after a few.
- Of a worker that has sent nothing yet, the rate is that of all others; of the first one, the caller's.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Set

KEPT_SHARE = 0.75
"""Of what was measured before, at each transfer."""


class _Measured(NamedTuple):
    size_bytes: float
    seconds: float

    def plus(self, size_bytes: int, seconds: float) -> _Measured:
        return _Measured(self.size_bytes * KEPT_SHARE + size_bytes, self.seconds * KEPT_SHARE + seconds)


class TransferRates:
    """Bytes a second, by the session of the worker that sends them. Times in seconds, by the caller's clock.

    Parameters:
        assumed_bytes_per_second: before anything was measured.
        part_bytes: what is requested at once.
    """

    def __init__(self, assumed_bytes_per_second: float, part_bytes: int) -> None:
        self._assumed, self._part_bytes = assumed_bytes_per_second, part_bytes
        self._all = _Measured(0.0, 0.0)
        self._of_holder: Dict[int, _Measured] = {}
        self._counted_until: Dict[int, float] = {}  # of holders that send

    def begin(self, holder: int, now: float) -> None:
        """A transfer from a worker begins."""
        self._counted_until.setdefault(holder, now)

    def complete(self, holder: int, size_bytes: int, now: float, began_at: float = 0.0) -> None:
        """A transfer from a worker is complete.

        Parameters:
            began_at: of another one, which does not end, no more counts than its part of this time.
        """
        counted_until = self._counted_until.get(holder)
        if counted_until is None:
            return  # it is gone
        since = max(counted_until, began_at)
        self._counted_until[holder] = now
        if size_bytes >= self._part_bytes and now > since:
            self._all = self._all.plus(size_bytes, now - since)
            self._of_holder[holder] = self._of_holder.get(holder, _Measured(0.0, 0.0)).plus(size_bytes, now - since)

    def pause(self, holder: int) -> None:
        """No transfer from a worker is left."""
        self._counted_until.pop(holder, None)

    def of(self, holder: int) -> float:
        """What others get from a worker, in bytes a second."""
        measured = self._of_holder.get(holder, self._all)
        return measured.size_bytes / measured.seconds if measured.seconds else self._assumed

    def forget(self, holder: int) -> None:
        """A worker is gone."""
        self._of_holder.pop(holder, None)
        self._counted_until.pop(holder, None)

    @property
    def holders(self) -> Set[int]:
        """Those of which anything is known."""
        return {*self._of_holder, *self._counted_until}
