"""A viewer of a cluster: its state, the view, and the resulting frame.

Rules:
- No terminal and no signals: keys are passed in by name, frames are returned as lines.
- A pause freezes the display but not the subscription: the newest figures are shown after it.
"""

from __future__ import annotations

import copy
import time
from typing import Callable, Optional, Protocol, Tuple, TypeVar

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top.frame import FeedSource, ScreenFrame, Size, arrange, render
from scaler_appliance.top.rows import Rows
from scaler_appliance.top.view import Extent, View, press

Key = TypeVar("Key")
Entity = TypeVar("Entity")


class Heard(Protocol):
    """The used part of a Feed."""

    address: str
    cluster: ClusterModel

    def age_seconds(self) -> float: ...

    def is_connected(self) -> bool: ...

    def silence_reason(self) -> str: ...


class Viewer:
    """A user's view of a feed."""

    def __init__(self, feed: Heard, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self._feed = feed
        self._clock = clock
        self._frozen: Optional[ClusterModel] = None
        self._frozen_at = 0.0
        self._extent = Extent(0, 0)
        self._arranged: Optional[Rows] = None
        self._arranged_for: Tuple[object, ...] = ()

    def press(self, key: str) -> None:
        self.view = press(self.view, key, self._extent)
        if not self.view.is_paused:
            self._frozen = None
        elif self._frozen is None:
            self._frozen, self._frozen_at = frozen(self._feed.cluster), self._clock()

    def frame(self, size: Size) -> ScreenFrame:
        """The current frame."""
        paused_seconds = self._clock() - self._frozen_at if self._frozen is not None else 0.0
        feed = self._feed
        source = FeedSource(
            feed.address, feed.age_seconds(), feed.is_connected(), paused_seconds, feed.silence_reason()
        )
        cluster = self._frozen or self._feed.cluster
        result = render(cluster, self.view, source, size, self._arrange(cluster))
        if not self.view.shows_help:
            self._extent = result.extent
        return result

    def _arrange(self, cluster: ClusterModel) -> Rows:
        """The rows, which are sorted again after a publication or a change of the order, but not to scroll."""
        made_for = (cluster, cluster.scheduler, self.view.sort, self.view.is_reversed, self.view.wanted)
        if self._arranged is None or self._arranged_for != made_for:
            self._arranged, self._arranged_for = arrange(cluster, self.view), made_for
        return self._arranged


def frozen(cluster: ClusterModel) -> ClusterModel:
    """A copy that later publications do not change: they replace lists and dictionaries, and change entities."""
    result = copy.copy(cluster)
    result.workers = _copied(cluster.workers)
    result.clients = _copied(cluster.clients)
    result.functions = _copied(cluster.functions)
    return result


def _copied(entities: dict[Key, Entity]) -> dict[Key, Entity]:
    return {key: copy.copy(entity) for key, entity in entities.items()}
