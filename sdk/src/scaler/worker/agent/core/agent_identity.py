"""How a worker introduces itself to the scheduler, and what its agent leaves to chance."""

from __future__ import annotations

from typing import Callable, Iterator, List, NamedTuple

from scaler.values.codecs import CODECS, NEUTRAL_CODECS
from scaler.version import __version__
from scaler.worker.agent.core.actor_flow.worker_actors import ACTORS
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS, KEPT_RESULTS, PEER_FETCH


class AgentIdentity(NamedTuple):
    """The identity of an agent.

    Parameters:
        name: of the worker.
        language: with its version, for display.
    """

    name: str
    host: str
    process_id: int
    language: str


class Chance(NamedTuple):
    """What an agent leaves to chance; its shell provides it, or a test.

    Parameters:
        random: a number from 0.0 to less than 1.0: see `PeerSession`.
        numbers: yields a new number for each object: see `object_numbers`.
    """

    random: Callable[[], float]
    numbers: Iterator[int]


def hello_of(settings: WorkerSettings, identity: AgentIdentity, functions: List[str]) -> m.Hello:
    """A Hello; `PeerSession` fills in versions and sessions."""
    return m.Hello(
        role=m.Role.WORKER,
        implementation=m.Implementation(name="scaler", version=__version__, language=identity.language),
        # SCL-COD-002
        features=[DRAIN_REQUESTS, KEPT_RESULTS, *([] if settings.only_named else [ACTORS])],
        codecs=list(NEUTRAL_CODECS if settings.only_named else CODECS),
        functions=functions,
        host=identity.host,
        process_id=identity.process_id,
        name=identity.name,
        slots=settings.slots,
        unit=settings.unit or "",
        queue_size=settings.per_worker_queue_size,
        capabilities=[m.Capability(name=name, amount=amount) for name, amount in settings.capabilities],
    )


# SCL-OBJ-033
def offer_transfers(hello: m.Hello, data_address: str, data_key: bytes) -> None:
    """Say in a Hello where others can fetch objects from this worker.

    Parameters:
        data_address: empty: nowhere, and it fetches nothing from them.
        data_key: its public key there; empty: it has none.
    """
    others = [feature for feature in hello.features if feature != PEER_FETCH]
    hello.features = [*others, PEER_FETCH] if data_address else others
    hello.data_address, hello.data_key = data_address, data_key
