"""How a client serves workers: where, and what."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Union

from scaler.arguments import Size, size_in_bytes
from scaler.data_serving.data_address import data_address_of
from scaler.exceptions import InvalidAddressError
from scaler.values.sizes import DIRECT_BYTES
from scaler_protocol.host.addresses import Address, AddressError

DATA_ADDRESS_VARIABLE = "SCALER_DATA_ADDRESS"
ANY_DATA_ADDRESS = "tcp://*:0"


class ServingOptions(NamedTuple):
    """
    Parameters:
        data_address: where workers fetch; host `*` and port 0: the interface with which the scheduler is reached, and
            any port; None: nowhere.
        direct_bytes: objects of at least this size stay with the client, for workers to fetch them.
    """

    data_address: Optional[Address] = None
    direct_bytes: int = DIRECT_BYTES

    def elsewhere(self) -> ServingOptions:
        """Those of a copy of the client in another process, where the same port may be taken, or another host's."""
        here = self.data_address
        return self if here is None or not here.port else ServingOptions(data_address_of(ANY_DATA_ADDRESS), self[1])


NOT_SERVING = ServingOptions()


def serving_options(data_address: Optional[str], direct_bytes: Optional[Union[Size, int]]) -> ServingOptions:
    """The options that a user has given; None: not given. Raises InvalidAddressError, InvalidArgumentError."""
    text = data_address if data_address is not None else os.environ.get(DATA_ADDRESS_VARIABLE) or ANY_DATA_ADDRESS
    what = "data_address" if data_address is not None else DATA_ADDRESS_VARIABLE
    try:
        address = data_address_of(text)
    except AddressError as error:
        raise InvalidAddressError(f"{what}: {error}") from None
    if address is not None and address.path:
        raise InvalidAddressError(f"{what}: workers cannot reach a path: use an address tcp://HOST:PORT, got {text!r}")
    size = DIRECT_BYTES if direct_bytes is None else size_in_bytes("direct_bytes", direct_bytes)
    return ServingOptions(address, size)
