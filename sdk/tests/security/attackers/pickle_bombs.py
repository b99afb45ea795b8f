"""Messages whose texts and bytes are pickles that tell on the process that loads them.

Rules:
- The messages are made from the schema: a field that is added to it gets a bomb by itself.
- A bomb leaves an empty file with the number of the process as its name, and becomes None.
- A bomb in a text is a pickle of protocol 0, which is ASCII; all others begin as the pickles of clients do.
"""

from __future__ import annotations

import pickle
from array import array
from enum import IntEnum
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple, Type

from codec_samples import default_fields, element_class

from scaler_protocol import InvalidFieldError, encode, encode_struct
from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct


class Bomb:
    """What is pickled; see the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> Tuple[Any, Tuple[str]]:
        return eval, (
            f"(lambda os: open(os.path.join({self.folder!r}, str(os.getpid())), 'a').close())(__import__('os'))",
        )


class Bombs:
    """The bombs of one test, and the processes that loaded one of them.

    Parameters:
        folder: that all processes can write to, in which the files appear.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        self.folder = folder
        self.bomb = Bomb(folder)
        self.data = pickle.dumps(self.bomb, 5)
        self.text = pickle.dumps(self.bomb, 0).decode("ascii")
        self.failure = encode_struct(self.filled(m.Failure()))

    def loaded(self) -> Set[int]:
        """The numbers of the processes that loaded a bomb."""
        return {int(file.name) for file in self.folder.iterdir()}

    def messages(self, **plausible: Any) -> List[Any]:
        """All messages of the protocol: each with bombs in all of its texts and bytes, then in one field at a time.

        Parameters:
            plausible: values of fields of these names, where they are no bombs.
        """
        made: List[Any] = []
        for message_class in m.MEMBERS:
            made.append(self.filled(self._plausible(message_class, plausible)))
            for name in fields_with_texts_or_bytes(message_class):
                message = self._plausible(message_class, plausible)
                setattr(message, name, self.value(message_class, name))
                made.append(message)
        return [message for message in made if _can_be_sent(message)]

    def filled(self, struct: Any) -> Any:
        """The struct with bombs in all of its texts and bytes, at any depth."""
        for name in fields_with_texts_or_bytes(type(struct)):
            setattr(struct, name, self.value(type(struct), name))
        return struct

    def value(self, struct_class: Type[Struct], name: str) -> Any:
        """A field with bombs."""
        default = getattr(struct_class(), name)
        if isinstance(default, str):
            return self.text
        if isinstance(default, bytes):
            return self.failure if name == "failure" else self.data
        if isinstance(default, list):
            element = element_class(struct_class, name)
            return [self.text] if element is str else [self.filled(element())]
        return self.filled(type(default)())

    def _plausible(self, message_class: Type[Struct], plausible: Dict[str, Any]) -> Any:
        usual = {"payload_sizes": array("I", [len(self.data)]), "ids": array("Q", [1]), "sizes": array("Q", [9])}
        known = {**usual, "request_id": 1, "id": 1, "session": 1, "slots": 1, **plausible}
        message = message_class()
        for name, default in default_fields(message_class):
            if name in known and type(default) is type(known[name]):
                value = known[name]
                setattr(message, name, array(default.typecode, value) if isinstance(default, array) else value)
            elif isinstance(default, IntEnum):
                setattr(message, name, type(default)(0))
        return message


def _can_be_sent(message: Any) -> bool:
    try:
        encode(message)
    except InvalidFieldError:
        return False
    return True


def fields_with_texts_or_bytes(struct_class: Type[Struct]) -> List[str]:
    """The names of the fields that can have a bomb, at any depth."""
    found = []
    for name, default in default_fields(struct_class):
        inner = type(default)
        if isinstance(default, list):
            inner = element_class(struct_class, name)
        if inner in (str, bytes) or (issubclass(inner, Struct) and fields_with_texts_or_bytes(inner)):
            found.append(name)
    return found
