"""The message classes of the protocol, one for each struct and enum of the schema.

GENERATED from protocol-spec/schema/*.capnp by protocol-spec/python/tools/generate.py: change the schema and
run that program, do not edit. A test compares this file with the schema.

How the schema's types appear here:

    integers, Float64, Bool       int, float, bool
    enum                          the IntEnum of that name; a plain int when the value is newer than this file
    Text, Data, List(UInt8)       str, bytes, bytes
    List(UInt64) and the like     array.array, the column of a batch. A constructor takes any sequence of
                                  numbers; an array of the right type code is kept as it is, without a copy
    List(Text), List(struct)      list
    struct                        an object, with default values when the sender left it out

All arguments of the constructors are keywords and optional. Objects are mutable, comparable, not hashable. Batches
have a method that checks whether their columns agree, as the annotations of the schema say (`columns.capnp`).
"""

# ruff: noqa: A002 (the schema decides how fields are called, `id` among them)

from __future__ import annotations

import struct
from array import array
from enum import IntEnum
from typing import Any, Dict, Iterable, List, Optional, Tuple, Type, Union

from scaler_protocol.wire.capnproto import (
    COLUMN_KINDS,
    NOTHING,
    Column,
    Reader,
    Struct,
    Writer,
    column,
    octets,
    struct_pointer,
)
from scaler_protocol.wire.columns import check_lengths, columns_differ, sum_differs
from scaler_protocol.wire.small_frames import DECODED_TEXTS, ENCODED_TEXTS, LARGEST_COUNT, SmallMessage

# Copying an empty column costs a third of making one.
_empty_uint16 = array("H").__copy__
_empty_uint32 = array("I").__copy__
_empty_uint64 = array("Q").__copy__


class Role(IntEnum):
    CLIENT = 0
    WORKER = 1
    SCHEDULER = 2
    MONITOR = 3


_ROLE: Dict[int, Role] = {member.value: member for member in Role}


class ActorState(IntEnum):
    WAITING = 0
    ALIVE = 1
    LOST = 2


_ACTOR_STATE: Dict[int, ActorState] = {member.value: member for member in ActorState}


class TaskStatus(IntEnum):
    SUCCESS = 0
    FAILED = 1
    CANCELLED = 2
    LOST = 3


_TASK_STATUS: Dict[int, TaskStatus] = {member.value: member for member in TaskStatus}


class FailureKind(IntEnum):
    TASK_RAISED = 0
    FUNCTION_NOT_LOADED = 1
    ARGUMENT_NOT_LOADED = 2
    RESULT_NOT_SERIALIZABLE = 3
    EXCEPTION_NOT_SERIALIZABLE = 4
    PROCESSOR_DIED = 5
    WORKER_LOST = 6
    OBJECT_MISSING = 7
    TIME_LIMIT = 8
    MEMORY_LIMIT = 9
    REJECTED = 10
    CODEC_UNKNOWN = 11
    PREDECESSOR_GONE = 12
    ACTOR_LOST = 13


_FAILURE_KIND: Dict[int, FailureKind] = {member.value: member for member in FailureKind}


class MissingReason(IntEnum):
    UNKNOWN = 0
    NO_ROOM = 1
    MAKER_LOST = 2


_MISSING_REASON: Dict[int, MissingReason] = {member.value: member for member in MissingReason}


class ObjectKind(IntEnum):
    VALUE = 0
    FUNCTION = 1
    SERIALIZER = 2
    ARGUMENTS = 3


_OBJECT_KIND: Dict[int, ObjectKind] = {member.value: member for member in ObjectKind}


class ObjectStorage(IntEnum):
    INLINE = 0
    SHARED = 1
    REMOTE = 2
    KEPT = 3
    HELD = 4


_OBJECT_STORAGE: Dict[int, ObjectStorage] = {member.value: member for member in ObjectStorage}


class ObjectAction(IntEnum):
    CREATE = 0
    DELETE = 1
    CLEAR = 2
    SPILL = 3
    HOLD = 4
    DROP = 5


_OBJECT_ACTION: Dict[int, ObjectAction] = {member.value: member for member in ObjectAction}


class ObjectResponseStatus(IntEnum):
    OK = 0
    MISSING = 1


_OBJECT_RESPONSE_STATUS: Dict[int, ObjectResponseStatus] = {member.value: member for member in ObjectResponseStatus}


class UnitState(IntEnum):
    PENDING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    FAILED = 4


_UNIT_STATE: Dict[int, UnitState] = {member.value: member for member in UnitState}


class RefusalReason(IntEnum):
    VERSION_MISMATCH = 0
    NOT_GREETED = 1
    ROLE_NOT_SERVED = 2
    MALFORMED = 3
    LIMIT_EXCEEDED = 4
    NOT_ALLOWED = 5
    SHUTTING_DOWN = 6
    PROTOCOL_VIOLATION = 7
    TICKET_UNKNOWN = 8
    TICKET_EXPIRED = 9
    TICKET_FOREIGN = 10


_REFUSAL_REASON: Dict[int, RefusalReason] = {member.value: member for member in RefusalReason}


class DisconnectReason(IntEnum):
    LEAVING = 0
    SHUTDOWN = 1
    DRAINING = 2


_DISCONNECT_REASON: Dict[int, DisconnectReason] = {member.value: member for member in DisconnectReason}


class DrainCause(IntEnum):
    UNKNOWN = 0
    SIGNAL = 1
    OPERATOR = 2
    IDLE = 3
    LIFETIME = 4
    NOTICE = 5


_DRAIN_CAUSE: Dict[int, DrainCause] = {member.value: member for member in DrainCause}


class CancelOutcome(IntEnum):
    CANCELLED = 0
    RUNNING = 1
    NOT_FOUND = 2


_CANCEL_OUTCOME: Dict[int, CancelOutcome] = {member.value: member for member in CancelOutcome}


_IMPLEMENTATION_WORDS = struct.Struct("<3Q")


class Implementation(Struct):
    __slots__ = ("name", "version", "language")
    DATA_WORDS = 0
    POINTER_WORDS = 3

    name: str
    version: str
    language: str

    def __init__(self, *, name: str = "", version: str = "", language: str = "") -> None:
        self.name = name
        self.version = version
        self.language = language

    def write(self, writer: Writer, at: int) -> bytes:
        return _IMPLEMENTATION_WORDS.pack(
            writer.text(self.name, at) if self.name else 0,
            writer.text(self.version, at + 1) if self.version else 0,
            writer.text(self.language, at + 2) if self.language else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Implementation:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 3:
            words = _IMPLEMENTATION_WORDS.unpack_from(reader.data, start)
        else:
            words = _IMPLEMENTATION_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 3))
        (
            name,
            version,
            language,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        self.version = reader.text(version, segment, at + 8) if version else ""
        self.language = reader.text(language, segment, at + 16) if language else ""
        return self


_CAPABILITY_WORDS = struct.Struct("<dQ")


class Capability(Struct):
    __slots__ = ("name", "amount")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    name: str
    amount: float

    def __init__(self, *, name: str = "", amount: float = 0.0) -> None:
        self.name = name
        self.amount = amount

    def write(self, writer: Writer, at: int) -> bytes:
        return _CAPABILITY_WORDS.pack(
            self.amount,
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Capability:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _CAPABILITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _CAPABILITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.amount,
            name,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_SLOT_DEMAND_WORDS = struct.Struct("<4QIIQ")


class SlotDemand(Struct):
    __slots__ = (
        "capabilities",
        "time_request_milliseconds",
        "tasks",
        "tasks_unmeasured",
        "work_microseconds",
        "slots_wanted",
        "slots_missing",
    )
    DATA_WORDS = 5
    POINTER_WORDS = 1

    capabilities: List[Capability]
    time_request_milliseconds: int
    tasks: int
    tasks_unmeasured: int
    work_microseconds: int
    slots_wanted: int
    slots_missing: int

    def __init__(
        self,
        *,
        capabilities: Iterable[Capability] = (),
        time_request_milliseconds: int = 0,
        tasks: int = 0,
        tasks_unmeasured: int = 0,
        work_microseconds: int = 0,
        slots_wanted: int = 0,
        slots_missing: int = 0,
    ) -> None:
        self.capabilities = list(capabilities)
        self.time_request_milliseconds = time_request_milliseconds
        self.tasks = tasks
        self.tasks_unmeasured = tasks_unmeasured
        self.work_microseconds = work_microseconds
        self.slots_wanted = slots_wanted
        self.slots_missing = slots_missing

    def write(self, writer: Writer, at: int) -> bytes:
        return _SLOT_DEMAND_WORDS.pack(
            self.time_request_milliseconds,
            self.tasks,
            self.tasks_unmeasured,
            self.work_microseconds,
            self.slots_wanted,
            self.slots_missing,
            writer.structs(self.capabilities, at) if self.capabilities else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> SlotDemand:
        self = cls.__new__(cls)
        if data_words == 5 and pointer_words == 1:
            words = _SLOT_DEMAND_WORDS.unpack_from(reader.data, start)
        else:
            words = _SLOT_DEMAND_WORDS.unpack(reader.resized(start, data_words, pointer_words, 5, 1))
        (
            self.time_request_milliseconds,
            self.tasks,
            self.tasks_unmeasured,
            self.work_microseconds,
            self.slots_wanted,
            self.slots_missing,
            capabilities,
        ) = words
        at = start + data_words * 8
        self.capabilities = reader.structs(capabilities, segment, at, Capability.read) if capabilities else []
        return self


_TASK_OPTIONS_WORDS = struct.Struct("<iHBx4Q")


class TaskOptions(Struct):
    __slots__ = (
        "priority",
        "capabilities",
        "retries",
        "time_limit_milliseconds",
        "memory_limit_bytes",
        "profiling",
        "at_most_once",
        "stream_output",
        "actor",
        "time_request_milliseconds",
    )
    DATA_WORDS = 4
    POINTER_WORDS = 1

    priority: int
    capabilities: List[Capability]
    retries: int
    time_limit_milliseconds: int
    memory_limit_bytes: int
    profiling: bool
    at_most_once: bool
    stream_output: bool
    actor: bool
    time_request_milliseconds: int

    def __init__(
        self,
        *,
        priority: int = 0,
        capabilities: Iterable[Capability] = (),
        retries: int = 0,
        time_limit_milliseconds: int = 0,
        memory_limit_bytes: int = 0,
        profiling: bool = False,
        at_most_once: bool = False,
        stream_output: bool = False,
        actor: bool = False,
        time_request_milliseconds: int = 0,
    ) -> None:
        self.priority = priority
        self.capabilities = list(capabilities)
        self.retries = retries
        self.time_limit_milliseconds = time_limit_milliseconds
        self.memory_limit_bytes = memory_limit_bytes
        self.profiling = profiling
        self.at_most_once = at_most_once
        self.stream_output = stream_output
        self.actor = actor
        self.time_request_milliseconds = time_request_milliseconds

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_OPTIONS_WORDS.pack(
            self.priority,
            self.retries,
            (1 if self.profiling else 0)
            | (2 if self.at_most_once else 0)
            | (4 if self.stream_output else 0)
            | (8 if self.actor else 0),
            self.time_limit_milliseconds,
            self.memory_limit_bytes,
            self.time_request_milliseconds,
            writer.structs(self.capabilities, at) if self.capabilities else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskOptions:
        self = cls.__new__(cls)
        if data_words == 4 and pointer_words == 1:
            words = _TASK_OPTIONS_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_OPTIONS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 4, 1))
        (
            self.priority,
            self.retries,
            flags_6,
            self.time_limit_milliseconds,
            self.memory_limit_bytes,
            self.time_request_milliseconds,
            capabilities,
        ) = words
        self.profiling = flags_6 & 1 != 0
        self.at_most_once = flags_6 & 2 != 0
        self.stream_output = flags_6 & 4 != 0
        self.actor = flags_6 & 8 != 0
        at = start + data_words * 8
        self.capabilities = reader.structs(capabilities, segment, at, Capability.read) if capabilities else []
        return self

    def write_flat(self) -> Optional[bytes]:
        """The words of the struct; None if it points to anything."""
        if self.capabilities:
            return None
        return _TASK_OPTIONS_WORDS.pack(
            self.priority,
            self.retries,
            (1 if self.profiling else 0)
            | (2 if self.at_most_once else 0)
            | (4 if self.stream_output else 0)
            | (8 if self.actor else 0),
            self.time_limit_milliseconds,
            self.memory_limit_bytes,
            self.time_request_milliseconds,
            0,
        )

    @classmethod
    def read_flat(cls, words: bytes) -> Optional[TaskOptions]:
        """The struct with these words; None if it points to anything."""
        self = cls.__new__(cls)
        (
            self.priority,
            self.retries,
            flags_6,
            self.time_limit_milliseconds,
            self.memory_limit_bytes,
            self.time_request_milliseconds,
            capabilities,
        ) = _TASK_OPTIONS_WORDS.unpack(words)
        if capabilities:
            return None
        self.profiling = flags_6 & 1 != 0
        self.at_most_once = flags_6 & 2 != 0
        self.stream_output = flags_6 & 4 != 0
        self.actor = flags_6 & 8 != 0
        self.capabilities = []
        return self


_FAILURE_WORDS = struct.Struct("<HHI6Q")


class Failure(Struct):
    __slots__ = (
        "kind",
        "type_name",
        "message",
        "traceback",
        "codec",
        "exception",
        "worker",
        "attempts",
        "missing_reason",
    )
    DATA_WORDS = 1
    POINTER_WORDS = 6

    kind: Union[FailureKind, int]
    type_name: str
    message: str
    traceback: str
    codec: str
    exception: bytes
    worker: str
    attempts: int
    missing_reason: Union[MissingReason, int]

    def __init__(
        self,
        *,
        kind: Union[FailureKind, int] = FailureKind.TASK_RAISED,
        type_name: str = "",
        message: str = "",
        traceback: str = "",
        codec: str = "",
        exception: Union[bytes, bytearray, memoryview] = b"",
        worker: str = "",
        attempts: int = 0,
        missing_reason: Union[MissingReason, int] = MissingReason.UNKNOWN,
    ) -> None:
        self.kind = kind
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.codec = codec
        self.exception = exception if type(exception) is bytes else octets(exception)
        self.worker = worker
        self.attempts = attempts
        self.missing_reason = missing_reason

    def write(self, writer: Writer, at: int) -> bytes:
        return _FAILURE_WORDS.pack(
            self.kind,
            self.missing_reason,
            self.attempts,
            writer.text(self.type_name, at) if self.type_name else 0,
            writer.text(self.message, at + 1) if self.message else 0,
            writer.text(self.traceback, at + 2) if self.traceback else 0,
            writer.text(self.codec, at + 3) if self.codec else 0,
            writer.octets(self.exception, at + 4) if self.exception else 0,
            writer.text(self.worker, at + 5) if self.worker else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Failure:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 6:
            words = _FAILURE_WORDS.unpack_from(reader.data, start)
        else:
            words = _FAILURE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 6))
        (
            kind,
            missing_reason,
            self.attempts,
            type_name,
            message,
            traceback,
            codec,
            exception,
            worker,
        ) = words
        self.kind = _FAILURE_KIND.get(kind, kind)
        self.missing_reason = _MISSING_REASON.get(missing_reason, missing_reason)
        at = start + data_words * 8
        self.type_name = reader.text(type_name, segment, at) if type_name else ""
        self.message = reader.text(message, segment, at + 8) if message else ""
        self.traceback = reader.text(traceback, segment, at + 16) if traceback else ""
        self.codec = reader.text(codec, segment, at + 24) if codec else ""
        self.exception = reader.octets(exception, segment, at + 32) if exception else b""
        self.worker = reader.text(worker, segment, at + 40) if worker else ""
        return self


_OBJECT_INSTRUCTION_WORDS = struct.Struct("<H6x6Q")


class ObjectInstruction(Struct):
    __slots__ = ("action", "ids", "sizes", "storages", "kinds", "names", "codec")
    DATA_WORDS = 1
    POINTER_WORDS = 6

    action: Union[ObjectAction, int]
    ids: array[int]
    sizes: array[int]
    storages: bytes
    kinds: bytes
    names: List[str]
    codec: str

    def __init__(
        self,
        *,
        action: Union[ObjectAction, int] = ObjectAction.CREATE,
        ids: Column = NOTHING,
        sizes: Column = NOTHING,
        storages: Column = b"",
        kinds: Column = b"",
        names: Iterable[str] = (),
        codec: str = "",
    ) -> None:
        self.action = action
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)
        self.sizes = _empty_uint64() if sizes is NOTHING else column("Q", sizes)
        self.storages = storages if type(storages) is bytes else octets(storages)
        self.kinds = kinds if type(kinds) is bytes else octets(kinds)
        self.names = list(names)
        self.codec = codec

    def write(self, writer: Writer, at: int) -> bytes:
        return _OBJECT_INSTRUCTION_WORDS.pack(
            self.action,
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.column(self.sizes, "Q", at + 1) if self.sizes else 0,
            writer.octets(self.storages, at + 2) if self.storages else 0,
            writer.octets(self.kinds, at + 3) if self.kinds else 0,
            writer.texts(self.names, at + 4) if self.names else 0,
            writer.text(self.codec, at + 5) if self.codec else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ObjectInstruction:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 6:
            words = _OBJECT_INSTRUCTION_WORDS.unpack_from(reader.data, start)
        else:
            words = _OBJECT_INSTRUCTION_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 6))
        (
            action,
            ids,
            sizes,
            storages,
            kinds,
            names,
            codec,
        ) = words
        self.action = _OBJECT_ACTION.get(action, action)
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.sizes = reader.column(sizes, segment, at + 8, "Q", 8) if sizes else _empty_uint64()
        self.storages = reader.octets(storages, segment, at + 16) if storages else b""
        self.kinds = reader.octets(kinds, segment, at + 24) if kinds else b""
        self.names = reader.texts(names, segment, at + 32) if names else []
        self.codec = reader.text(codec, segment, at + 40) if codec else ""
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(self, "ids", ("sizes", "storages"), ("kinds", "names"))


_OBJECT_REQUEST_WORDS = struct.Struct("<QQI4xQ")


class ObjectRequest(Struct):
    __slots__ = ("id", "offset", "length", "ticket")
    DATA_WORDS = 3
    POINTER_WORDS = 1

    id: int
    offset: int
    length: int
    ticket: bytes

    def __init__(
        self, *, id: int = 0, offset: int = 0, length: int = 0, ticket: Union[bytes, bytearray, memoryview] = b""
    ) -> None:
        self.id = id
        self.offset = offset
        self.length = length
        self.ticket = ticket if type(ticket) is bytes else octets(ticket)

    def write(self, writer: Writer, at: int) -> bytes:
        return _OBJECT_REQUEST_WORDS.pack(
            self.id,
            self.offset,
            self.length,
            writer.octets(self.ticket, at) if self.ticket else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ObjectRequest:
        self = cls.__new__(cls)
        if data_words == 3 and pointer_words == 1:
            words = _OBJECT_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _OBJECT_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 3, 1))
        (
            self.id,
            self.offset,
            self.length,
            ticket,
        ) = words
        at = start + data_words * 8
        self.ticket = reader.octets(ticket, segment, at) if ticket else b""
        return self


_OBJECT_RESPONSE_WORDS = struct.Struct("<QQHH4xQ")


class ObjectResponse(Struct):
    __slots__ = ("id", "offset", "status", "size", "missing_reason")
    DATA_WORDS = 4
    POINTER_WORDS = 0

    id: int
    offset: int
    status: Union[ObjectResponseStatus, int]
    size: int
    missing_reason: Union[MissingReason, int]

    def __init__(
        self,
        *,
        id: int = 0,
        offset: int = 0,
        status: Union[ObjectResponseStatus, int] = ObjectResponseStatus.OK,
        size: int = 0,
        missing_reason: Union[MissingReason, int] = MissingReason.UNKNOWN,
    ) -> None:
        self.id = id
        self.offset = offset
        self.status = status
        self.size = size
        self.missing_reason = missing_reason

    def write(self, writer: Writer, at: int) -> bytes:
        return _OBJECT_RESPONSE_WORDS.pack(
            self.id,
            self.offset,
            self.status,
            self.missing_reason,
            self.size,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ObjectResponse:
        self = cls.__new__(cls)
        if data_words == 4 and pointer_words == 0:
            words = _OBJECT_RESPONSE_WORDS.unpack_from(reader.data, start)
        else:
            words = _OBJECT_RESPONSE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 4, 0))
        (
            self.id,
            self.offset,
            status,
            missing_reason,
            self.size,
        ) = words
        self.status = _OBJECT_RESPONSE_STATUS.get(status, status)
        self.missing_reason = _MISSING_REASON.get(missing_reason, missing_reason)
        return self


_TICKET_REQUEST_WORDS = struct.Struct("<QI4x")


class TicketRequest(Struct):
    __slots__ = ("id", "failed_holder")
    DATA_WORDS = 2
    POINTER_WORDS = 0

    id: int
    failed_holder: int

    def __init__(self, *, id: int = 0, failed_holder: int = 0) -> None:
        self.id = id
        self.failed_holder = failed_holder

    def write(self, writer: Writer, at: int) -> bytes:
        return _TICKET_REQUEST_WORDS.pack(
            self.id,
            self.failed_holder,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TicketRequest:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 0:
            words = _TICKET_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _TICKET_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 0))
        (
            self.id,
            self.failed_holder,
        ) = words
        return self


_TICKET_WORDS = struct.Struct("<QII3Q")


class Ticket(Struct):
    __slots__ = ("id", "holder", "secret", "lifetime_milliseconds", "address", "key")
    DATA_WORDS = 2
    POINTER_WORDS = 3

    id: int
    holder: int
    secret: bytes
    lifetime_milliseconds: int
    address: str
    key: bytes

    def __init__(
        self,
        *,
        id: int = 0,
        holder: int = 0,
        secret: Union[bytes, bytearray, memoryview] = b"",
        lifetime_milliseconds: int = 0,
        address: str = "",
        key: Union[bytes, bytearray, memoryview] = b"",
    ) -> None:
        self.id = id
        self.holder = holder
        self.secret = secret if type(secret) is bytes else octets(secret)
        self.lifetime_milliseconds = lifetime_milliseconds
        self.address = address
        self.key = key if type(key) is bytes else octets(key)

    def write(self, writer: Writer, at: int) -> bytes:
        return _TICKET_WORDS.pack(
            self.id,
            self.holder,
            self.lifetime_milliseconds,
            writer.octets(self.secret, at) if self.secret else 0,
            writer.text(self.address, at + 1) if self.address else 0,
            writer.octets(self.key, at + 2) if self.key else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Ticket:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 3:
            words = _TICKET_WORDS.unpack_from(reader.data, start)
        else:
            words = _TICKET_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 3))
        (
            self.id,
            self.holder,
            self.lifetime_milliseconds,
            secret,
            address,
            key,
        ) = words
        at = start + data_words * 8
        self.secret = reader.octets(secret, segment, at) if secret else b""
        self.address = reader.text(address, segment, at + 8) if address else ""
        self.key = reader.octets(key, segment, at + 16) if key else b""
        return self


_DEMAND_WORDS = struct.Struct("<3Q")


class Demand(Struct):
    __slots__ = ("demands", "units", "units_sequence")
    DATA_WORDS = 1
    POINTER_WORDS = 2

    demands: List[SlotDemand]
    units: List[UnitUse]
    units_sequence: int

    def __init__(
        self, *, demands: Iterable[SlotDemand] = (), units: Iterable[UnitUse] = (), units_sequence: int = 0
    ) -> None:
        self.demands = list(demands)
        self.units = list(units)
        self.units_sequence = units_sequence

    def write(self, writer: Writer, at: int) -> bytes:
        return _DEMAND_WORDS.pack(
            self.units_sequence,
            writer.structs(self.demands, at) if self.demands else 0,
            writer.structs(self.units, at + 1) if self.units else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Demand:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 2:
            words = _DEMAND_WORDS.unpack_from(reader.data, start)
        else:
            words = _DEMAND_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 2))
        (
            self.units_sequence,
            demands,
            units,
        ) = words
        at = start + data_words * 8
        self.demands = reader.structs(demands, segment, at, SlotDemand.read) if demands else []
        self.units = reader.structs(units, segment, at + 8, UnitUse.read) if units else []
        return self


_UNIT_USE_WORDS = struct.Struct("<IB3xQ")


class UnitUse(Struct):
    __slots__ = ("unit", "slots", "is_leaving")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    unit: str
    slots: int
    is_leaving: bool

    def __init__(self, *, unit: str = "", slots: int = 0, is_leaving: bool = False) -> None:
        self.unit = unit
        self.slots = slots
        self.is_leaving = is_leaving

    def write(self, writer: Writer, at: int) -> bytes:
        return _UNIT_USE_WORDS.pack(
            self.slots,
            (1 if self.is_leaving else 0),
            writer.text(self.unit, at) if self.unit else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> UnitUse:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _UNIT_USE_WORDS.unpack_from(reader.data, start)
        else:
            words = _UNIT_USE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.slots,
            flags_4,
            unit,
        ) = words
        self.is_leaving = flags_4 & 1 != 0
        at = start + data_words * 8
        self.unit = reader.text(unit, segment, at) if unit else ""
        return self


_UNIT_WORDS = struct.Struct("<HxxI5Q")


class Unit(Struct):
    __slots__ = ("unit", "pool", "state", "reason", "lifetime_milliseconds", "slots", "capabilities")
    DATA_WORDS = 2
    POINTER_WORDS = 4

    unit: str
    pool: str
    state: Union[UnitState, int]
    reason: str
    lifetime_milliseconds: int
    slots: int
    capabilities: List[Capability]

    def __init__(
        self,
        *,
        unit: str = "",
        pool: str = "",
        state: Union[UnitState, int] = UnitState.PENDING,
        reason: str = "",
        lifetime_milliseconds: int = 0,
        slots: int = 0,
        capabilities: Iterable[Capability] = (),
    ) -> None:
        self.unit = unit
        self.pool = pool
        self.state = state
        self.reason = reason
        self.lifetime_milliseconds = lifetime_milliseconds
        self.slots = slots
        self.capabilities = list(capabilities)

    def write(self, writer: Writer, at: int) -> bytes:
        return _UNIT_WORDS.pack(
            self.state,
            self.slots,
            self.lifetime_milliseconds,
            writer.text(self.unit, at) if self.unit else 0,
            writer.text(self.pool, at + 1) if self.pool else 0,
            writer.text(self.reason, at + 2) if self.reason else 0,
            writer.structs(self.capabilities, at + 3) if self.capabilities else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Unit:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 4:
            words = _UNIT_WORDS.unpack_from(reader.data, start)
        else:
            words = _UNIT_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 4))
        (
            state,
            self.slots,
            self.lifetime_milliseconds,
            unit,
            pool,
            reason,
            capabilities,
        ) = words
        self.state = _UNIT_STATE.get(state, state)
        at = start + data_words * 8
        self.unit = reader.text(unit, segment, at) if unit else ""
        self.pool = reader.text(pool, segment, at + 8) if pool else ""
        self.reason = reader.text(reason, segment, at + 16) if reason else ""
        self.capabilities = reader.structs(capabilities, segment, at + 24, Capability.read) if capabilities else []
        return self


_UNIT_POOL_WORDS = struct.Struct("<II3Q")


class UnitPool(Struct):
    __slots__ = ("pool", "slots", "maximum_units", "capabilities", "lifetime_milliseconds")
    DATA_WORDS = 2
    POINTER_WORDS = 2

    pool: str
    slots: int
    maximum_units: int
    capabilities: List[Capability]
    lifetime_milliseconds: int

    def __init__(
        self,
        *,
        pool: str = "",
        slots: int = 0,
        maximum_units: int = 0,
        capabilities: Iterable[Capability] = (),
        lifetime_milliseconds: int = 0,
    ) -> None:
        self.pool = pool
        self.slots = slots
        self.maximum_units = maximum_units
        self.capabilities = list(capabilities)
        self.lifetime_milliseconds = lifetime_milliseconds

    def write(self, writer: Writer, at: int) -> bytes:
        return _UNIT_POOL_WORDS.pack(
            self.slots,
            self.maximum_units,
            self.lifetime_milliseconds,
            writer.text(self.pool, at) if self.pool else 0,
            writer.structs(self.capabilities, at + 1) if self.capabilities else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> UnitPool:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 2:
            words = _UNIT_POOL_WORDS.unpack_from(reader.data, start)
        else:
            words = _UNIT_POOL_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 2))
        (
            self.slots,
            self.maximum_units,
            self.lifetime_milliseconds,
            pool,
            capabilities,
        ) = words
        at = start + data_words * 8
        self.pool = reader.text(pool, segment, at) if pool else ""
        self.capabilities = reader.structs(capabilities, segment, at + 8, Capability.read) if capabilities else []
        return self


_UNITS_WORDS = struct.Struct("<4Q")


class Units(Struct):
    __slots__ = ("units", "notes", "sequence", "pools")
    DATA_WORDS = 1
    POINTER_WORDS = 3

    units: List[Unit]
    notes: List[str]
    sequence: int
    pools: List[UnitPool]

    def __init__(
        self,
        *,
        units: Iterable[Unit] = (),
        notes: Iterable[str] = (),
        sequence: int = 0,
        pools: Iterable[UnitPool] = (),
    ) -> None:
        self.units = list(units)
        self.notes = list(notes)
        self.sequence = sequence
        self.pools = list(pools)

    def write(self, writer: Writer, at: int) -> bytes:
        return _UNITS_WORDS.pack(
            self.sequence,
            writer.structs(self.units, at) if self.units else 0,
            writer.texts(self.notes, at + 1) if self.notes else 0,
            writer.structs(self.pools, at + 2) if self.pools else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Units:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 3:
            words = _UNITS_WORDS.unpack_from(reader.data, start)
        else:
            words = _UNITS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 3))
        (
            self.sequence,
            units,
            notes,
            pools,
        ) = words
        at = start + data_words * 8
        self.units = reader.structs(units, segment, at, Unit.read) if units else []
        self.notes = reader.texts(notes, segment, at + 8) if notes else []
        self.pools = reader.structs(pools, segment, at + 16, UnitPool.read) if pools else []
        return self


_RELEASE_REQUEST_WORDS = struct.Struct("<QIB3xQQ")


class ReleaseRequest(Struct):
    __slots__ = ("request_id", "units", "count", "idle_milliseconds", "may_be_busy")
    DATA_WORDS = 3
    POINTER_WORDS = 1

    request_id: int
    units: List[str]
    count: int
    idle_milliseconds: int
    may_be_busy: bool

    def __init__(
        self,
        *,
        request_id: int = 0,
        units: Iterable[str] = (),
        count: int = 0,
        idle_milliseconds: int = 0,
        may_be_busy: bool = False,
    ) -> None:
        self.request_id = request_id
        self.units = list(units)
        self.count = count
        self.idle_milliseconds = idle_milliseconds
        self.may_be_busy = may_be_busy

    def write(self, writer: Writer, at: int) -> bytes:
        return _RELEASE_REQUEST_WORDS.pack(
            self.request_id,
            self.count,
            (1 if self.may_be_busy else 0),
            self.idle_milliseconds,
            writer.texts(self.units, at) if self.units else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ReleaseRequest:
        self = cls.__new__(cls)
        if data_words == 3 and pointer_words == 1:
            words = _RELEASE_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _RELEASE_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 3, 1))
        (
            self.request_id,
            self.count,
            flags_12,
            self.idle_milliseconds,
            units,
        ) = words
        self.may_be_busy = flags_12 & 1 != 0
        at = start + data_words * 8
        self.units = reader.texts(units, segment, at) if units else []
        return self


_RELEASE_WORDS = struct.Struct("<QQ")


class Release(Struct):
    __slots__ = ("request_id", "units")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    request_id: int
    units: List[str]

    def __init__(self, *, request_id: int = 0, units: Iterable[str] = ()) -> None:
        self.request_id = request_id
        self.units = list(units)

    def write(self, writer: Writer, at: int) -> bytes:
        return _RELEASE_WORDS.pack(
            self.request_id,
            writer.texts(self.units, at) if self.units else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Release:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _RELEASE_WORDS.unpack_from(reader.data, start)
        else:
            words = _RELEASE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.request_id,
            units,
        ) = words
        at = start + data_words * 8
        self.units = reader.texts(units, segment, at) if units else []
        return self


_HELLO_WORDS = struct.Struct("<4H6I13Q")


class Hello(Struct):
    __slots__ = (
        "major",
        "minor_min",
        "minor_max",
        "role",
        "implementation",
        "features",
        "codecs",
        "host",
        "process_id",
        "name",
        "slots",
        "queue_size",
        "capabilities",
        "previous_session",
        "heartbeat_interval_milliseconds",
        "functions",
        "remaining_milliseconds",
        "data_address",
        "data_key",
        "unit",
        "resume_token",
        "received",
        "resume_attempt",
    )
    DATA_WORDS = 6
    POINTER_WORDS = 11

    major: int
    minor_min: int
    minor_max: int
    role: Union[Role, int]
    implementation: Implementation
    features: List[str]
    codecs: List[str]
    host: str
    process_id: int
    name: str
    slots: int
    queue_size: int
    capabilities: List[Capability]
    previous_session: int
    heartbeat_interval_milliseconds: int
    functions: List[str]
    remaining_milliseconds: int
    data_address: str
    data_key: bytes
    unit: str
    resume_token: bytes
    received: int
    resume_attempt: int

    def __init__(
        self,
        *,
        major: int = 0,
        minor_min: int = 0,
        minor_max: int = 0,
        role: Union[Role, int] = Role.CLIENT,
        implementation: Optional[Implementation] = None,
        features: Iterable[str] = (),
        codecs: Iterable[str] = (),
        host: str = "",
        process_id: int = 0,
        name: str = "",
        slots: int = 0,
        queue_size: int = 0,
        capabilities: Iterable[Capability] = (),
        previous_session: int = 0,
        heartbeat_interval_milliseconds: int = 0,
        functions: Iterable[str] = (),
        remaining_milliseconds: int = 0,
        data_address: str = "",
        data_key: Union[bytes, bytearray, memoryview] = b"",
        unit: str = "",
        resume_token: Union[bytes, bytearray, memoryview] = b"",
        received: int = 0,
        resume_attempt: int = 0,
    ) -> None:
        self.major = major
        self.minor_min = minor_min
        self.minor_max = minor_max
        self.role = role
        self.implementation = Implementation() if implementation is None else implementation
        self.features = list(features)
        self.codecs = list(codecs)
        self.host = host
        self.process_id = process_id
        self.name = name
        self.slots = slots
        self.queue_size = queue_size
        self.capabilities = list(capabilities)
        self.previous_session = previous_session
        self.heartbeat_interval_milliseconds = heartbeat_interval_milliseconds
        self.functions = list(functions)
        self.remaining_milliseconds = remaining_milliseconds
        self.data_address = data_address
        self.data_key = data_key if type(data_key) is bytes else octets(data_key)
        self.unit = unit
        self.resume_token = resume_token if type(resume_token) is bytes else octets(resume_token)
        self.received = received
        self.resume_attempt = resume_attempt

    def write(self, writer: Writer, at: int) -> bytes:
        return _HELLO_WORDS.pack(
            self.major,
            self.minor_min,
            self.minor_max,
            self.role,
            self.process_id,
            self.slots,
            self.queue_size,
            self.previous_session,
            self.heartbeat_interval_milliseconds,
            self.resume_attempt,
            self.remaining_milliseconds,
            self.received,
            writer.struct(self.implementation, at),
            writer.texts(self.features, at + 1) if self.features else 0,
            writer.texts(self.codecs, at + 2) if self.codecs else 0,
            writer.text(self.host, at + 3) if self.host else 0,
            writer.text(self.name, at + 4) if self.name else 0,
            writer.structs(self.capabilities, at + 5) if self.capabilities else 0,
            writer.texts(self.functions, at + 6) if self.functions else 0,
            writer.text(self.data_address, at + 7) if self.data_address else 0,
            writer.octets(self.data_key, at + 8) if self.data_key else 0,
            writer.text(self.unit, at + 9) if self.unit else 0,
            writer.octets(self.resume_token, at + 10) if self.resume_token else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Hello:
        self = cls.__new__(cls)
        if data_words == 6 and pointer_words == 11:
            words = _HELLO_WORDS.unpack_from(reader.data, start)
        else:
            words = _HELLO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 6, 11))
        (
            self.major,
            self.minor_min,
            self.minor_max,
            role,
            self.process_id,
            self.slots,
            self.queue_size,
            self.previous_session,
            self.heartbeat_interval_milliseconds,
            self.resume_attempt,
            self.remaining_milliseconds,
            self.received,
            implementation,
            features,
            codecs,
            host,
            name,
            capabilities,
            functions,
            data_address,
            data_key,
            unit,
            resume_token,
        ) = words
        self.role = _ROLE.get(role, role)
        at = start + data_words * 8
        self.implementation = (
            reader.struct(implementation, segment, at, Implementation.read) if implementation else Implementation()
        )
        self.features = reader.texts(features, segment, at + 8) if features else []
        self.codecs = reader.texts(codecs, segment, at + 16) if codecs else []
        self.host = reader.text(host, segment, at + 24) if host else ""
        self.name = reader.text(name, segment, at + 32) if name else ""
        self.capabilities = reader.structs(capabilities, segment, at + 40, Capability.read) if capabilities else []
        self.functions = reader.texts(functions, segment, at + 48) if functions else []
        self.data_address = reader.text(data_address, segment, at + 56) if data_address else ""
        self.data_key = reader.octets(data_key, segment, at + 64) if data_key else b""
        self.unit = reader.text(unit, segment, at + 72) if unit else ""
        self.resume_token = reader.octets(resume_token, segment, at + 80) if resume_token else b""
        return self


_WELCOME_WORDS = struct.Struct("<HH3IB7x9Q")


class Welcome(Struct):
    __slots__ = (
        "major",
        "minor",
        "implementation",
        "scheduler_id",
        "session",
        "features",
        "limits",
        "heartbeat_interval_milliseconds",
        "timeout_milliseconds",
        "object_directory",
        "object_directory_token",
        "protected",
        "monitor_address",
        "resume_token",
        "is_resumed",
        "received",
    )
    DATA_WORDS = 4
    POINTER_WORDS = 8

    major: int
    minor: int
    implementation: Implementation
    scheduler_id: bytes
    session: int
    features: List[str]
    limits: Limits
    heartbeat_interval_milliseconds: int
    timeout_milliseconds: int
    object_directory: str
    object_directory_token: bytes
    protected: bool
    monitor_address: str
    resume_token: bytes
    is_resumed: bool
    received: int

    def __init__(
        self,
        *,
        major: int = 0,
        minor: int = 0,
        implementation: Optional[Implementation] = None,
        scheduler_id: Union[bytes, bytearray, memoryview] = b"",
        session: int = 0,
        features: Iterable[str] = (),
        limits: Optional[Limits] = None,
        heartbeat_interval_milliseconds: int = 0,
        timeout_milliseconds: int = 0,
        object_directory: str = "",
        object_directory_token: Union[bytes, bytearray, memoryview] = b"",
        protected: bool = False,
        monitor_address: str = "",
        resume_token: Union[bytes, bytearray, memoryview] = b"",
        is_resumed: bool = False,
        received: int = 0,
    ) -> None:
        self.major = major
        self.minor = minor
        self.implementation = Implementation() if implementation is None else implementation
        self.scheduler_id = scheduler_id if type(scheduler_id) is bytes else octets(scheduler_id)
        self.session = session
        self.features = list(features)
        self.limits = Limits() if limits is None else limits
        self.heartbeat_interval_milliseconds = heartbeat_interval_milliseconds
        self.timeout_milliseconds = timeout_milliseconds
        self.object_directory = object_directory
        self.object_directory_token = (
            object_directory_token if type(object_directory_token) is bytes else octets(object_directory_token)
        )
        self.protected = protected
        self.monitor_address = monitor_address
        self.resume_token = resume_token if type(resume_token) is bytes else octets(resume_token)
        self.is_resumed = is_resumed
        self.received = received

    def write(self, writer: Writer, at: int) -> bytes:
        return _WELCOME_WORDS.pack(
            self.major,
            self.minor,
            self.session,
            self.heartbeat_interval_milliseconds,
            self.timeout_milliseconds,
            (1 if self.protected else 0) | (2 if self.is_resumed else 0),
            self.received,
            writer.struct(self.implementation, at),
            writer.octets(self.scheduler_id, at + 1) if self.scheduler_id else 0,
            writer.texts(self.features, at + 2) if self.features else 0,
            writer.struct(self.limits, at + 3),
            writer.text(self.object_directory, at + 4) if self.object_directory else 0,
            writer.octets(self.object_directory_token, at + 5) if self.object_directory_token else 0,
            writer.text(self.monitor_address, at + 6) if self.monitor_address else 0,
            writer.octets(self.resume_token, at + 7) if self.resume_token else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Welcome:
        self = cls.__new__(cls)
        if data_words == 4 and pointer_words == 8:
            words = _WELCOME_WORDS.unpack_from(reader.data, start)
        else:
            words = _WELCOME_WORDS.unpack(reader.resized(start, data_words, pointer_words, 4, 8))
        (
            self.major,
            self.minor,
            self.session,
            self.heartbeat_interval_milliseconds,
            self.timeout_milliseconds,
            flags_16,
            self.received,
            implementation,
            scheduler_id,
            features,
            limits,
            object_directory,
            object_directory_token,
            monitor_address,
            resume_token,
        ) = words
        self.protected = flags_16 & 1 != 0
        self.is_resumed = flags_16 & 2 != 0
        at = start + data_words * 8
        self.implementation = (
            reader.struct(implementation, segment, at, Implementation.read) if implementation else Implementation()
        )
        self.scheduler_id = reader.octets(scheduler_id, segment, at + 8) if scheduler_id else b""
        self.features = reader.texts(features, segment, at + 16) if features else []
        self.limits = reader.struct(limits, segment, at + 24, Limits.read) if limits else Limits()
        self.object_directory = reader.text(object_directory, segment, at + 32) if object_directory else ""
        self.object_directory_token = (
            reader.octets(object_directory_token, segment, at + 40) if object_directory_token else b""
        )
        self.monitor_address = reader.text(monitor_address, segment, at + 48) if monitor_address else ""
        self.resume_token = reader.octets(resume_token, segment, at + 56) if resume_token else b""
        return self


_LIMITS_WORDS = struct.Struct("<QQIIQQ")


class Limits(Struct):
    __slots__ = (
        "maximum_message_bytes",
        "maximum_object_bytes",
        "chunk_bytes",
        "tasks_in_flight",
        "bytes_in_flight",
        "inline_bytes",
    )
    DATA_WORDS = 5
    POINTER_WORDS = 0

    maximum_message_bytes: int
    maximum_object_bytes: int
    chunk_bytes: int
    tasks_in_flight: int
    bytes_in_flight: int
    inline_bytes: int

    def __init__(
        self,
        *,
        maximum_message_bytes: int = 0,
        maximum_object_bytes: int = 0,
        chunk_bytes: int = 0,
        tasks_in_flight: int = 0,
        bytes_in_flight: int = 0,
        inline_bytes: int = 0,
    ) -> None:
        self.maximum_message_bytes = maximum_message_bytes
        self.maximum_object_bytes = maximum_object_bytes
        self.chunk_bytes = chunk_bytes
        self.tasks_in_flight = tasks_in_flight
        self.bytes_in_flight = bytes_in_flight
        self.inline_bytes = inline_bytes

    def write(self, writer: Writer, at: int) -> bytes:
        return _LIMITS_WORDS.pack(
            self.maximum_message_bytes,
            self.maximum_object_bytes,
            self.chunk_bytes,
            self.inline_bytes,
            self.tasks_in_flight,
            self.bytes_in_flight,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Limits:
        self = cls.__new__(cls)
        if data_words == 5 and pointer_words == 0:
            words = _LIMITS_WORDS.unpack_from(reader.data, start)
        else:
            words = _LIMITS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 5, 0))
        (
            self.maximum_message_bytes,
            self.maximum_object_bytes,
            self.chunk_bytes,
            self.inline_bytes,
            self.tasks_in_flight,
            self.bytes_in_flight,
        ) = words
        return self


_REFUSAL_WORDS = struct.Struct("<4HQQ")


class Refusal(Struct):
    __slots__ = ("reason", "message", "major", "minor_min", "minor_max", "implementation")
    DATA_WORDS = 1
    POINTER_WORDS = 2

    reason: Union[RefusalReason, int]
    message: str
    major: int
    minor_min: int
    minor_max: int
    implementation: Implementation

    def __init__(
        self,
        *,
        reason: Union[RefusalReason, int] = RefusalReason.VERSION_MISMATCH,
        message: str = "",
        major: int = 0,
        minor_min: int = 0,
        minor_max: int = 0,
        implementation: Optional[Implementation] = None,
    ) -> None:
        self.reason = reason
        self.message = message
        self.major = major
        self.minor_min = minor_min
        self.minor_max = minor_max
        self.implementation = Implementation() if implementation is None else implementation

    def write(self, writer: Writer, at: int) -> bytes:
        return _REFUSAL_WORDS.pack(
            self.reason,
            self.major,
            self.minor_min,
            self.minor_max,
            writer.text(self.message, at) if self.message else 0,
            writer.struct(self.implementation, at + 1),
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Refusal:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 2:
            words = _REFUSAL_WORDS.unpack_from(reader.data, start)
        else:
            words = _REFUSAL_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 2))
        (
            reason,
            self.major,
            self.minor_min,
            self.minor_max,
            message,
            implementation,
        ) = words
        self.reason = _REFUSAL_REASON.get(reason, reason)
        at = start + data_words * 8
        self.message = reader.text(message, segment, at) if message else ""
        self.implementation = (
            reader.struct(implementation, segment, at + 8, Implementation.read) if implementation else Implementation()
        )
        return self


_PROCESSOR_STATUS_WORDS = struct.Struct("<IB3xII3Q")


class ProcessorStatus(Struct):
    __slots__ = (
        "process_id",
        "initialized",
        "has_task",
        "suspended",
        "cpu_permille",
        "resident_bytes",
        "queued",
        "instance",
        "task_microseconds",
    )
    DATA_WORDS = 5
    POINTER_WORDS = 0

    process_id: int
    initialized: bool
    has_task: bool
    suspended: bool
    cpu_permille: int
    resident_bytes: int
    queued: int
    instance: int
    task_microseconds: int

    def __init__(
        self,
        *,
        process_id: int = 0,
        initialized: bool = False,
        has_task: bool = False,
        suspended: bool = False,
        cpu_permille: int = 0,
        resident_bytes: int = 0,
        queued: int = 0,
        instance: int = 0,
        task_microseconds: int = 0,
    ) -> None:
        self.process_id = process_id
        self.initialized = initialized
        self.has_task = has_task
        self.suspended = suspended
        self.cpu_permille = cpu_permille
        self.resident_bytes = resident_bytes
        self.queued = queued
        self.instance = instance
        self.task_microseconds = task_microseconds

    def write(self, writer: Writer, at: int) -> bytes:
        return _PROCESSOR_STATUS_WORDS.pack(
            self.process_id,
            (1 if self.initialized else 0) | (2 if self.has_task else 0) | (4 if self.suspended else 0),
            self.cpu_permille,
            self.queued,
            self.resident_bytes,
            self.instance,
            self.task_microseconds,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ProcessorStatus:
        self = cls.__new__(cls)
        if data_words == 5 and pointer_words == 0:
            words = _PROCESSOR_STATUS_WORDS.unpack_from(reader.data, start)
        else:
            words = _PROCESSOR_STATUS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 5, 0))
        (
            self.process_id,
            flags_4,
            self.cpu_permille,
            self.queued,
            self.resident_bytes,
            self.instance,
            self.task_microseconds,
        ) = words
        self.initialized = flags_4 & 1 != 0
        self.has_task = flags_4 & 2 != 0
        self.suspended = flags_4 & 4 != 0
        return self


_HEARTBEAT_WORDS = struct.Struct("<QB3xIQQIIQQ")


class Heartbeat(Struct):
    __slots__ = (
        "sequence",
        "shares_object_directory",
        "cpu_permille",
        "resident_bytes",
        "free_bytes",
        "latency_microseconds",
        "queued",
        "processors",
        "received",
    )
    DATA_WORDS = 6
    POINTER_WORDS = 1

    sequence: int
    shares_object_directory: bool
    cpu_permille: int
    resident_bytes: int
    free_bytes: int
    latency_microseconds: int
    queued: int
    processors: List[ProcessorStatus]
    received: int

    def __init__(
        self,
        *,
        sequence: int = 0,
        shares_object_directory: bool = False,
        cpu_permille: int = 0,
        resident_bytes: int = 0,
        free_bytes: int = 0,
        latency_microseconds: int = 0,
        queued: int = 0,
        processors: Iterable[ProcessorStatus] = (),
        received: int = 0,
    ) -> None:
        self.sequence = sequence
        self.shares_object_directory = shares_object_directory
        self.cpu_permille = cpu_permille
        self.resident_bytes = resident_bytes
        self.free_bytes = free_bytes
        self.latency_microseconds = latency_microseconds
        self.queued = queued
        self.processors = list(processors)
        self.received = received

    def write(self, writer: Writer, at: int) -> bytes:
        return _HEARTBEAT_WORDS.pack(
            self.sequence,
            (1 if self.shares_object_directory else 0),
            self.cpu_permille,
            self.resident_bytes,
            self.free_bytes,
            self.latency_microseconds,
            self.queued,
            self.received,
            writer.structs(self.processors, at) if self.processors else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Heartbeat:
        self = cls.__new__(cls)
        if data_words == 6 and pointer_words == 1:
            words = _HEARTBEAT_WORDS.unpack_from(reader.data, start)
        else:
            words = _HEARTBEAT_WORDS.unpack(reader.resized(start, data_words, pointer_words, 6, 1))
        (
            self.sequence,
            flags_8,
            self.cpu_permille,
            self.resident_bytes,
            self.free_bytes,
            self.latency_microseconds,
            self.queued,
            self.received,
            processors,
        ) = words
        self.shares_object_directory = flags_8 & 1 != 0
        at = start + data_words * 8
        self.processors = reader.structs(processors, segment, at, ProcessorStatus.read) if processors else []
        return self


_HEARTBEAT_ECHO_WORDS = struct.Struct("<QIB3xQQ")


class HeartbeatEcho(Struct):
    __slots__ = ("sequence", "slots", "tasks_waiting", "is_watched", "received")
    DATA_WORDS = 4
    POINTER_WORDS = 0

    sequence: int
    slots: int
    tasks_waiting: int
    is_watched: bool
    received: int

    def __init__(
        self, *, sequence: int = 0, slots: int = 0, tasks_waiting: int = 0, is_watched: bool = False, received: int = 0
    ) -> None:
        self.sequence = sequence
        self.slots = slots
        self.tasks_waiting = tasks_waiting
        self.is_watched = is_watched
        self.received = received

    def write(self, writer: Writer, at: int) -> bytes:
        return _HEARTBEAT_ECHO_WORDS.pack(
            self.sequence,
            self.slots,
            (1 if self.is_watched else 0),
            self.tasks_waiting,
            self.received,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> HeartbeatEcho:
        self = cls.__new__(cls)
        if data_words == 4 and pointer_words == 0:
            words = _HEARTBEAT_ECHO_WORDS.unpack_from(reader.data, start)
        else:
            words = _HEARTBEAT_ECHO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 4, 0))
        (
            self.sequence,
            self.slots,
            flags_12,
            self.tasks_waiting,
            self.received,
        ) = words
        self.is_watched = flags_12 & 1 != 0
        return self


_DISCONNECT_REQUEST_WORDS = struct.Struct("<HH4xQ")


class DisconnectRequest(Struct):
    __slots__ = ("reason", "message", "drain_cause")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    reason: Union[DisconnectReason, int]
    message: str
    drain_cause: Union[DrainCause, int]

    def __init__(
        self,
        *,
        reason: Union[DisconnectReason, int] = DisconnectReason.LEAVING,
        message: str = "",
        drain_cause: Union[DrainCause, int] = DrainCause.UNKNOWN,
    ) -> None:
        self.reason = reason
        self.message = message
        self.drain_cause = drain_cause

    def write(self, writer: Writer, at: int) -> bytes:
        return _DISCONNECT_REQUEST_WORDS.pack(
            self.reason,
            self.drain_cause,
            writer.text(self.message, at) if self.message else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> DisconnectRequest:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _DISCONNECT_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _DISCONNECT_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            reason,
            drain_cause,
            message,
        ) = words
        self.reason = _DISCONNECT_REASON.get(reason, reason)
        self.drain_cause = _DRAIN_CAUSE.get(drain_cause, drain_cause)
        at = start + data_words * 8
        self.message = reader.text(message, segment, at) if message else ""
        return self


_DISCONNECT_RESPONSE_WORDS = struct.Struct("<")


class DisconnectResponse(Struct):
    __slots__ = ()
    DATA_WORDS = 0
    POINTER_WORDS = 0

    def write(self, writer: Writer, at: int) -> bytes:
        return b""

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> DisconnectResponse:
        return cls.__new__(cls)


_CLIENT_SHUTDOWN_WORDS = struct.Struct("<")


class ClientShutdown(Struct):
    __slots__ = ()
    DATA_WORDS = 0
    POINTER_WORDS = 0

    def write(self, writer: Writer, at: int) -> bytes:
        return b""

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ClientShutdown:
        return cls.__new__(cls)


_CLIENT_SHUTDOWN_RESPONSE_WORDS = struct.Struct("<B7xQ")


class ClientShutdownResponse(Struct):
    __slots__ = ("accepted", "message")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    accepted: bool
    message: str

    def __init__(self, *, accepted: bool = False, message: str = "") -> None:
        self.accepted = accepted
        self.message = message

    def write(self, writer: Writer, at: int) -> bytes:
        return _CLIENT_SHUTDOWN_RESPONSE_WORDS.pack(
            (1 if self.accepted else 0),
            writer.text(self.message, at) if self.message else 0,
        )

    @classmethod
    def read(
        cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int
    ) -> ClientShutdownResponse:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _CLIENT_SHUTDOWN_RESPONSE_WORDS.unpack_from(reader.data, start)
        else:
            words = _CLIENT_SHUTDOWN_RESPONSE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            flags_0,
            message,
        ) = words
        self.accepted = flags_0 & 1 != 0
        at = start + data_words * 8
        self.message = reader.text(message, segment, at) if message else ""
        return self


_INFO_REQUEST_WORDS = struct.Struct("<QII")


class InfoRequest(Struct):
    __slots__ = ("request_id", "maximum_workers", "maximum_actors")
    DATA_WORDS = 2
    POINTER_WORDS = 0

    request_id: int
    maximum_workers: int
    maximum_actors: int

    def __init__(self, *, request_id: int = 0, maximum_workers: int = 0, maximum_actors: int = 0) -> None:
        self.request_id = request_id
        self.maximum_workers = maximum_workers
        self.maximum_actors = maximum_actors

    def write(self, writer: Writer, at: int) -> bytes:
        return _INFO_REQUEST_WORDS.pack(
            self.request_id,
            self.maximum_workers,
            self.maximum_actors,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> InfoRequest:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 0:
            words = _INFO_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _INFO_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 0))
        (
            self.request_id,
            self.maximum_workers,
            self.maximum_actors,
        ) = words
        return self


_WORKER_INFO_WORDS = struct.Struct("<4IQQ")


class WorkerInfo(Struct):
    __slots__ = ("session", "name", "host", "process_id", "slots", "tasks")
    DATA_WORDS = 2
    POINTER_WORDS = 2

    session: int
    name: str
    host: str
    process_id: int
    slots: int
    tasks: int

    def __init__(
        self, *, session: int = 0, name: str = "", host: str = "", process_id: int = 0, slots: int = 0, tasks: int = 0
    ) -> None:
        self.session = session
        self.name = name
        self.host = host
        self.process_id = process_id
        self.slots = slots
        self.tasks = tasks

    def write(self, writer: Writer, at: int) -> bytes:
        return _WORKER_INFO_WORDS.pack(
            self.session,
            self.process_id,
            self.slots,
            self.tasks,
            writer.text(self.name, at) if self.name else 0,
            writer.text(self.host, at + 1) if self.host else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> WorkerInfo:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 2:
            words = _WORKER_INFO_WORDS.unpack_from(reader.data, start)
        else:
            words = _WORKER_INFO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 2))
        (
            self.session,
            self.process_id,
            self.slots,
            self.tasks,
            name,
            host,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        self.host = reader.text(host, segment, at + 8) if host else ""
        return self


_ACTOR_INFO_WORDS = struct.Struct("<QII4QH6x3Q")


class ActorInfo(Struct):
    __slots__ = (
        "id",
        "name",
        "client",
        "worker",
        "worker_name",
        "calls_waiting",
        "calls_running",
        "calls_finished",
        "calls_failed",
        "state",
        "why_lost",
    )
    DATA_WORDS = 7
    POINTER_WORDS = 3

    id: int
    name: str
    client: int
    worker: int
    worker_name: str
    calls_waiting: int
    calls_running: int
    calls_finished: int
    calls_failed: int
    state: Union[ActorState, int]
    why_lost: str

    def __init__(
        self,
        *,
        id: int = 0,
        name: str = "",
        client: int = 0,
        worker: int = 0,
        worker_name: str = "",
        calls_waiting: int = 0,
        calls_running: int = 0,
        calls_finished: int = 0,
        calls_failed: int = 0,
        state: Union[ActorState, int] = ActorState.WAITING,
        why_lost: str = "",
    ) -> None:
        self.id = id
        self.name = name
        self.client = client
        self.worker = worker
        self.worker_name = worker_name
        self.calls_waiting = calls_waiting
        self.calls_running = calls_running
        self.calls_finished = calls_finished
        self.calls_failed = calls_failed
        self.state = state
        self.why_lost = why_lost

    def write(self, writer: Writer, at: int) -> bytes:
        return _ACTOR_INFO_WORDS.pack(
            self.id,
            self.client,
            self.worker,
            self.calls_waiting,
            self.calls_running,
            self.calls_finished,
            self.calls_failed,
            self.state,
            writer.text(self.name, at) if self.name else 0,
            writer.text(self.worker_name, at + 1) if self.worker_name else 0,
            writer.text(self.why_lost, at + 2) if self.why_lost else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ActorInfo:
        self = cls.__new__(cls)
        if data_words == 7 and pointer_words == 3:
            words = _ACTOR_INFO_WORDS.unpack_from(reader.data, start)
        else:
            words = _ACTOR_INFO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 7, 3))
        (
            self.id,
            self.client,
            self.worker,
            self.calls_waiting,
            self.calls_running,
            self.calls_finished,
            self.calls_failed,
            state,
            name,
            worker_name,
            why_lost,
        ) = words
        self.state = _ACTOR_STATE.get(state, state)
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        self.worker_name = reader.text(worker_name, segment, at + 8) if worker_name else ""
        self.why_lost = reader.text(why_lost, segment, at + 16) if why_lost else ""
        return self


_INFO_WORDS = struct.Struct("<QQ4IQQI4x3Q")


class Info(Struct):
    __slots__ = (
        "request_id",
        "implementation",
        "uptime_milliseconds",
        "clients",
        "worker_count",
        "slots",
        "slots_free",
        "tasks_waiting",
        "tasks_running",
        "workers",
        "actor_count",
        "actors",
    )
    DATA_WORDS = 7
    POINTER_WORDS = 3

    request_id: int
    implementation: Implementation
    uptime_milliseconds: int
    clients: int
    worker_count: int
    slots: int
    slots_free: int
    tasks_waiting: int
    tasks_running: int
    workers: List[WorkerInfo]
    actor_count: int
    actors: List[ActorInfo]

    def __init__(
        self,
        *,
        request_id: int = 0,
        implementation: Optional[Implementation] = None,
        uptime_milliseconds: int = 0,
        clients: int = 0,
        worker_count: int = 0,
        slots: int = 0,
        slots_free: int = 0,
        tasks_waiting: int = 0,
        tasks_running: int = 0,
        workers: Iterable[WorkerInfo] = (),
        actor_count: int = 0,
        actors: Iterable[ActorInfo] = (),
    ) -> None:
        self.request_id = request_id
        self.implementation = Implementation() if implementation is None else implementation
        self.uptime_milliseconds = uptime_milliseconds
        self.clients = clients
        self.worker_count = worker_count
        self.slots = slots
        self.slots_free = slots_free
        self.tasks_waiting = tasks_waiting
        self.tasks_running = tasks_running
        self.workers = list(workers)
        self.actor_count = actor_count
        self.actors = list(actors)

    def write(self, writer: Writer, at: int) -> bytes:
        return _INFO_WORDS.pack(
            self.request_id,
            self.uptime_milliseconds,
            self.clients,
            self.worker_count,
            self.slots,
            self.slots_free,
            self.tasks_waiting,
            self.tasks_running,
            self.actor_count,
            writer.struct(self.implementation, at),
            writer.structs(self.workers, at + 1) if self.workers else 0,
            writer.structs(self.actors, at + 2) if self.actors else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Info:
        self = cls.__new__(cls)
        if data_words == 7 and pointer_words == 3:
            words = _INFO_WORDS.unpack_from(reader.data, start)
        else:
            words = _INFO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 7, 3))
        (
            self.request_id,
            self.uptime_milliseconds,
            self.clients,
            self.worker_count,
            self.slots,
            self.slots_free,
            self.tasks_waiting,
            self.tasks_running,
            self.actor_count,
            implementation,
            workers,
            actors,
        ) = words
        at = start + data_words * 8
        self.implementation = (
            reader.struct(implementation, segment, at, Implementation.read) if implementation else Implementation()
        )
        self.workers = reader.structs(workers, segment, at + 8, WorkerInfo.read) if workers else []
        self.actors = reader.structs(actors, segment, at + 16, ActorInfo.read) if actors else []
        return self


_WORKER_SHUTDOWN_WORDS = struct.Struct("<QIB3xQ")


class WorkerShutdown(Struct):
    __slots__ = ("request_id", "session", "is_draining", "name")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    request_id: int
    session: int
    is_draining: bool
    name: str

    def __init__(self, *, request_id: int = 0, session: int = 0, is_draining: bool = False, name: str = "") -> None:
        self.request_id = request_id
        self.session = session
        self.is_draining = is_draining
        self.name = name

    def write(self, writer: Writer, at: int) -> bytes:
        return _WORKER_SHUTDOWN_WORDS.pack(
            self.request_id,
            self.session,
            (1 if self.is_draining else 0),
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> WorkerShutdown:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _WORKER_SHUTDOWN_WORDS.unpack_from(reader.data, start)
        else:
            words = _WORKER_SHUTDOWN_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.request_id,
            self.session,
            flags_12,
            name,
        ) = words
        self.is_draining = flags_12 & 1 != 0
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_WORKER_SHUTDOWN_RESPONSE_WORDS = struct.Struct("<QB7xQ")


class WorkerShutdownResponse(Struct):
    __slots__ = ("request_id", "accepted", "message")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    request_id: int
    accepted: bool
    message: str

    def __init__(self, *, request_id: int = 0, accepted: bool = False, message: str = "") -> None:
        self.request_id = request_id
        self.accepted = accepted
        self.message = message

    def write(self, writer: Writer, at: int) -> bytes:
        return _WORKER_SHUTDOWN_RESPONSE_WORDS.pack(
            self.request_id,
            (1 if self.accepted else 0),
            writer.text(self.message, at) if self.message else 0,
        )

    @classmethod
    def read(
        cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int
    ) -> WorkerShutdownResponse:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _WORKER_SHUTDOWN_RESPONSE_WORDS.unpack_from(reader.data, start)
        else:
            words = _WORKER_SHUTDOWN_RESPONSE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.request_id,
            flags_8,
            message,
        ) = words
        self.accepted = flags_8 & 1 != 0
        at = start + data_words * 8
        self.message = reader.text(message, segment, at) if message else ""
        return self


_COUNT_WORDS = struct.Struct("<QQ")


class Count(Struct):
    __slots__ = ("name", "value")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    name: str
    value: int

    def __init__(self, *, name: str = "", value: int = 0) -> None:
        self.name = name
        self.value = value

    def write(self, writer: Writer, at: int) -> bytes:
        return _COUNT_WORDS.pack(
            self.value,
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Count:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _COUNT_WORDS.unpack_from(reader.data, start)
        else:
            words = _COUNT_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.value,
            name,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_SCHEDULER_STATUS_WORDS = struct.Struct("<QB3xIQQI4x36Q")


class SchedulerStatus(Struct):
    __slots__ = (
        "scheduler_id",
        "sequence",
        "is_snapshot",
        "unix_microseconds",
        "started_unix_microseconds",
        "implementation",
        "address",
        "host",
        "process_id",
        "is_protected",
        "cpu_permille",
        "resident_bytes",
        "status_microseconds",
        "objects",
        "object_bytes",
        "object_bytes_on_disk",
        "slots",
        "tasks",
        "sent",
        "received",
        "workers",
        "processors",
        "clients",
        "functions",
        "graphs",
        "large_objects",
        "new_workers",
        "new_clients",
        "new_functions",
        "new_objects",
        "workers_gone",
        "clients_gone",
        "functions_gone",
        "graphs_gone",
        "objects_gone",
        "waiting_reasons",
        "is_insecure",
        "demands",
        "unit_notes",
        "actors",
        "new_actors",
        "actors_gone",
        "lost_actors",
        "pools",
    )
    DATA_WORDS = 11
    POINTER_WORDS = 30

    scheduler_id: bytes
    sequence: int
    is_snapshot: bool
    unix_microseconds: int
    started_unix_microseconds: int
    implementation: Implementation
    address: str
    host: str
    process_id: int
    is_protected: bool
    cpu_permille: int
    resident_bytes: int
    status_microseconds: int
    objects: int
    object_bytes: int
    object_bytes_on_disk: int
    slots: int
    tasks: List[Count]
    sent: List[Count]
    received: List[Count]
    workers: WorkerColumns
    processors: ProcessorColumns
    clients: ClientColumns
    functions: FunctionColumns
    graphs: GraphColumns
    large_objects: ObjectColumns
    new_workers: List[WorkerIdentity]
    new_clients: List[ClientIdentity]
    new_functions: List[FunctionIdentity]
    new_objects: List[ObjectIdentity]
    workers_gone: array[int]
    clients_gone: array[int]
    functions_gone: array[int]
    graphs_gone: array[int]
    objects_gone: array[int]
    waiting_reasons: List[str]
    is_insecure: bool
    demands: List[SlotDemand]
    unit_notes: List[str]
    actors: ActorColumns
    new_actors: List[ActorIdentity]
    actors_gone: array[int]
    lost_actors: List[LostActor]
    pools: List[PoolDemand]

    def __init__(
        self,
        *,
        scheduler_id: Union[bytes, bytearray, memoryview] = b"",
        sequence: int = 0,
        is_snapshot: bool = False,
        unix_microseconds: int = 0,
        started_unix_microseconds: int = 0,
        implementation: Optional[Implementation] = None,
        address: str = "",
        host: str = "",
        process_id: int = 0,
        is_protected: bool = False,
        cpu_permille: int = 0,
        resident_bytes: int = 0,
        status_microseconds: int = 0,
        objects: int = 0,
        object_bytes: int = 0,
        object_bytes_on_disk: int = 0,
        slots: int = 0,
        tasks: Iterable[Count] = (),
        sent: Iterable[Count] = (),
        received: Iterable[Count] = (),
        workers: Optional[WorkerColumns] = None,
        processors: Optional[ProcessorColumns] = None,
        clients: Optional[ClientColumns] = None,
        functions: Optional[FunctionColumns] = None,
        graphs: Optional[GraphColumns] = None,
        large_objects: Optional[ObjectColumns] = None,
        new_workers: Iterable[WorkerIdentity] = (),
        new_clients: Iterable[ClientIdentity] = (),
        new_functions: Iterable[FunctionIdentity] = (),
        new_objects: Iterable[ObjectIdentity] = (),
        workers_gone: Column = NOTHING,
        clients_gone: Column = NOTHING,
        functions_gone: Column = NOTHING,
        graphs_gone: Column = NOTHING,
        objects_gone: Column = NOTHING,
        waiting_reasons: Iterable[str] = (),
        is_insecure: bool = False,
        demands: Iterable[SlotDemand] = (),
        unit_notes: Iterable[str] = (),
        actors: Optional[ActorColumns] = None,
        new_actors: Iterable[ActorIdentity] = (),
        actors_gone: Column = NOTHING,
        lost_actors: Iterable[LostActor] = (),
        pools: Iterable[PoolDemand] = (),
    ) -> None:
        self.scheduler_id = scheduler_id if type(scheduler_id) is bytes else octets(scheduler_id)
        self.sequence = sequence
        self.is_snapshot = is_snapshot
        self.unix_microseconds = unix_microseconds
        self.started_unix_microseconds = started_unix_microseconds
        self.implementation = Implementation() if implementation is None else implementation
        self.address = address
        self.host = host
        self.process_id = process_id
        self.is_protected = is_protected
        self.cpu_permille = cpu_permille
        self.resident_bytes = resident_bytes
        self.status_microseconds = status_microseconds
        self.objects = objects
        self.object_bytes = object_bytes
        self.object_bytes_on_disk = object_bytes_on_disk
        self.slots = slots
        self.tasks = list(tasks)
        self.sent = list(sent)
        self.received = list(received)
        self.workers = WorkerColumns() if workers is None else workers
        self.processors = ProcessorColumns() if processors is None else processors
        self.clients = ClientColumns() if clients is None else clients
        self.functions = FunctionColumns() if functions is None else functions
        self.graphs = GraphColumns() if graphs is None else graphs
        self.large_objects = ObjectColumns() if large_objects is None else large_objects
        self.new_workers = list(new_workers)
        self.new_clients = list(new_clients)
        self.new_functions = list(new_functions)
        self.new_objects = list(new_objects)
        self.workers_gone = _empty_uint32() if workers_gone is NOTHING else column("I", workers_gone)
        self.clients_gone = _empty_uint32() if clients_gone is NOTHING else column("I", clients_gone)
        self.functions_gone = _empty_uint32() if functions_gone is NOTHING else column("I", functions_gone)
        self.graphs_gone = _empty_uint64() if graphs_gone is NOTHING else column("Q", graphs_gone)
        self.objects_gone = _empty_uint64() if objects_gone is NOTHING else column("Q", objects_gone)
        self.waiting_reasons = list(waiting_reasons)
        self.is_insecure = is_insecure
        self.demands = list(demands)
        self.unit_notes = list(unit_notes)
        self.actors = ActorColumns() if actors is None else actors
        self.new_actors = list(new_actors)
        self.actors_gone = _empty_uint64() if actors_gone is NOTHING else column("Q", actors_gone)
        self.lost_actors = list(lost_actors)
        self.pools = list(pools)

    def write(self, writer: Writer, at: int) -> bytes:
        return _SCHEDULER_STATUS_WORDS.pack(
            self.sequence,
            (1 if self.is_snapshot else 0) | (2 if self.is_protected else 0) | (4 if self.is_insecure else 0),
            self.process_id,
            self.unix_microseconds,
            self.started_unix_microseconds,
            self.cpu_permille,
            self.resident_bytes,
            self.status_microseconds,
            self.objects,
            self.object_bytes,
            self.object_bytes_on_disk,
            self.slots,
            writer.octets(self.scheduler_id, at) if self.scheduler_id else 0,
            writer.struct(self.implementation, at + 1),
            writer.text(self.address, at + 2) if self.address else 0,
            writer.text(self.host, at + 3) if self.host else 0,
            writer.structs(self.tasks, at + 4) if self.tasks else 0,
            writer.structs(self.sent, at + 5) if self.sent else 0,
            writer.structs(self.received, at + 6) if self.received else 0,
            writer.struct(self.workers, at + 7),
            writer.struct(self.processors, at + 8),
            writer.struct(self.clients, at + 9),
            writer.struct(self.functions, at + 10),
            writer.struct(self.graphs, at + 11),
            writer.struct(self.large_objects, at + 12),
            writer.structs(self.new_workers, at + 13) if self.new_workers else 0,
            writer.structs(self.new_clients, at + 14) if self.new_clients else 0,
            writer.structs(self.new_functions, at + 15) if self.new_functions else 0,
            writer.structs(self.new_objects, at + 16) if self.new_objects else 0,
            writer.column(self.workers_gone, "I", at + 17) if self.workers_gone else 0,
            writer.column(self.clients_gone, "I", at + 18) if self.clients_gone else 0,
            writer.column(self.functions_gone, "I", at + 19) if self.functions_gone else 0,
            writer.column(self.graphs_gone, "Q", at + 20) if self.graphs_gone else 0,
            writer.column(self.objects_gone, "Q", at + 21) if self.objects_gone else 0,
            writer.texts(self.waiting_reasons, at + 22) if self.waiting_reasons else 0,
            writer.structs(self.demands, at + 23) if self.demands else 0,
            writer.texts(self.unit_notes, at + 24) if self.unit_notes else 0,
            writer.struct(self.actors, at + 25),
            writer.structs(self.new_actors, at + 26) if self.new_actors else 0,
            writer.column(self.actors_gone, "Q", at + 27) if self.actors_gone else 0,
            writer.structs(self.lost_actors, at + 28) if self.lost_actors else 0,
            writer.structs(self.pools, at + 29) if self.pools else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> SchedulerStatus:
        self = cls.__new__(cls)
        if data_words == 11 and pointer_words == 30:
            words = _SCHEDULER_STATUS_WORDS.unpack_from(reader.data, start)
        else:
            words = _SCHEDULER_STATUS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 11, 30))
        (
            self.sequence,
            flags_8,
            self.process_id,
            self.unix_microseconds,
            self.started_unix_microseconds,
            self.cpu_permille,
            self.resident_bytes,
            self.status_microseconds,
            self.objects,
            self.object_bytes,
            self.object_bytes_on_disk,
            self.slots,
            scheduler_id,
            implementation,
            address,
            host,
            tasks,
            sent,
            received,
            workers,
            processors,
            clients,
            functions,
            graphs,
            large_objects,
            new_workers,
            new_clients,
            new_functions,
            new_objects,
            workers_gone,
            clients_gone,
            functions_gone,
            graphs_gone,
            objects_gone,
            waiting_reasons,
            demands,
            unit_notes,
            actors,
            new_actors,
            actors_gone,
            lost_actors,
            pools,
        ) = words
        self.is_snapshot = flags_8 & 1 != 0
        self.is_protected = flags_8 & 2 != 0
        self.is_insecure = flags_8 & 4 != 0
        at = start + data_words * 8
        self.scheduler_id = reader.octets(scheduler_id, segment, at) if scheduler_id else b""
        self.implementation = (
            reader.struct(implementation, segment, at + 8, Implementation.read) if implementation else Implementation()
        )
        self.address = reader.text(address, segment, at + 16) if address else ""
        self.host = reader.text(host, segment, at + 24) if host else ""
        self.tasks = reader.structs(tasks, segment, at + 32, Count.read) if tasks else []
        self.sent = reader.structs(sent, segment, at + 40, Count.read) if sent else []
        self.received = reader.structs(received, segment, at + 48, Count.read) if received else []
        self.workers = reader.struct(workers, segment, at + 56, WorkerColumns.read) if workers else WorkerColumns()
        self.processors = (
            reader.struct(processors, segment, at + 64, ProcessorColumns.read) if processors else ProcessorColumns()
        )
        self.clients = reader.struct(clients, segment, at + 72, ClientColumns.read) if clients else ClientColumns()
        self.functions = (
            reader.struct(functions, segment, at + 80, FunctionColumns.read) if functions else FunctionColumns()
        )
        self.graphs = reader.struct(graphs, segment, at + 88, GraphColumns.read) if graphs else GraphColumns()
        self.large_objects = (
            reader.struct(large_objects, segment, at + 96, ObjectColumns.read) if large_objects else ObjectColumns()
        )
        self.new_workers = reader.structs(new_workers, segment, at + 104, WorkerIdentity.read) if new_workers else []
        self.new_clients = reader.structs(new_clients, segment, at + 112, ClientIdentity.read) if new_clients else []
        self.new_functions = (
            reader.structs(new_functions, segment, at + 120, FunctionIdentity.read) if new_functions else []
        )
        self.new_objects = reader.structs(new_objects, segment, at + 128, ObjectIdentity.read) if new_objects else []
        self.workers_gone = reader.column(workers_gone, segment, at + 136, "I", 4) if workers_gone else _empty_uint32()
        self.clients_gone = reader.column(clients_gone, segment, at + 144, "I", 4) if clients_gone else _empty_uint32()
        self.functions_gone = (
            reader.column(functions_gone, segment, at + 152, "I", 4) if functions_gone else _empty_uint32()
        )
        self.graphs_gone = reader.column(graphs_gone, segment, at + 160, "Q", 8) if graphs_gone else _empty_uint64()
        self.objects_gone = reader.column(objects_gone, segment, at + 168, "Q", 8) if objects_gone else _empty_uint64()
        self.waiting_reasons = reader.texts(waiting_reasons, segment, at + 176) if waiting_reasons else []
        self.demands = reader.structs(demands, segment, at + 184, SlotDemand.read) if demands else []
        self.unit_notes = reader.texts(unit_notes, segment, at + 192) if unit_notes else []
        self.actors = reader.struct(actors, segment, at + 200, ActorColumns.read) if actors else ActorColumns()
        self.new_actors = reader.structs(new_actors, segment, at + 208, ActorIdentity.read) if new_actors else []
        self.actors_gone = reader.column(actors_gone, segment, at + 216, "Q", 8) if actors_gone else _empty_uint64()
        self.lost_actors = reader.structs(lost_actors, segment, at + 224, LostActor.read) if lost_actors else []
        self.pools = reader.structs(pools, segment, at + 232, PoolDemand.read) if pools else []
        return self


_POOL_DEMAND_WORDS = struct.Struct("<3I4xQ")


class PoolDemand(Struct):
    __slots__ = ("pool", "slots_wanted", "units_wanted", "units")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    pool: str
    slots_wanted: int
    units_wanted: int
    units: int

    def __init__(self, *, pool: str = "", slots_wanted: int = 0, units_wanted: int = 0, units: int = 0) -> None:
        self.pool = pool
        self.slots_wanted = slots_wanted
        self.units_wanted = units_wanted
        self.units = units

    def write(self, writer: Writer, at: int) -> bytes:
        return _POOL_DEMAND_WORDS.pack(
            self.slots_wanted,
            self.units_wanted,
            self.units,
            writer.text(self.pool, at) if self.pool else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> PoolDemand:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _POOL_DEMAND_WORDS.unpack_from(reader.data, start)
        else:
            words = _POOL_DEMAND_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.slots_wanted,
            self.units_wanted,
            self.units,
            pool,
        ) = words
        at = start + data_words * 8
        self.pool = reader.text(pool, segment, at) if pool else ""
        return self


_WORKER_IDENTITY_WORDS = struct.Struct("<3I4x4Q")


class WorkerIdentity(Struct):
    __slots__ = ("session", "name", "host", "process_id", "slots", "implementation", "capabilities")
    DATA_WORDS = 2
    POINTER_WORDS = 4

    session: int
    name: str
    host: str
    process_id: int
    slots: int
    implementation: Implementation
    capabilities: List[Capability]

    def __init__(
        self,
        *,
        session: int = 0,
        name: str = "",
        host: str = "",
        process_id: int = 0,
        slots: int = 0,
        implementation: Optional[Implementation] = None,
        capabilities: Iterable[Capability] = (),
    ) -> None:
        self.session = session
        self.name = name
        self.host = host
        self.process_id = process_id
        self.slots = slots
        self.implementation = Implementation() if implementation is None else implementation
        self.capabilities = list(capabilities)

    def write(self, writer: Writer, at: int) -> bytes:
        return _WORKER_IDENTITY_WORDS.pack(
            self.session,
            self.process_id,
            self.slots,
            writer.text(self.name, at) if self.name else 0,
            writer.text(self.host, at + 1) if self.host else 0,
            writer.struct(self.implementation, at + 2),
            writer.structs(self.capabilities, at + 3) if self.capabilities else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> WorkerIdentity:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 4:
            words = _WORKER_IDENTITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _WORKER_IDENTITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 4))
        (
            self.session,
            self.process_id,
            self.slots,
            name,
            host,
            implementation,
            capabilities,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        self.host = reader.text(host, segment, at + 8) if host else ""
        self.implementation = (
            reader.struct(implementation, segment, at + 16, Implementation.read) if implementation else Implementation()
        )
        self.capabilities = reader.structs(capabilities, segment, at + 24, Capability.read) if capabilities else []
        return self


_WORKER_COLUMNS_WORDS = struct.Struct("<12Q")


class WorkerColumns(Struct):
    __slots__ = (
        "sessions",
        "tasks",
        "queued",
        "sent",
        "finished",
        "failed",
        "cpu_permille",
        "resident_bytes",
        "free_bytes",
        "latency_microseconds",
        "states",
        "processors",
    )
    DATA_WORDS = 0
    POINTER_WORDS = 12

    sessions: array[int]
    tasks: array[int]
    queued: array[int]
    sent: array[int]
    finished: array[int]
    failed: array[int]
    cpu_permille: array[int]
    resident_bytes: array[int]
    free_bytes: array[int]
    latency_microseconds: array[int]
    states: bytes
    processors: array[int]

    def __init__(
        self,
        *,
        sessions: Column = NOTHING,
        tasks: Column = NOTHING,
        queued: Column = NOTHING,
        sent: Column = NOTHING,
        finished: Column = NOTHING,
        failed: Column = NOTHING,
        cpu_permille: Column = NOTHING,
        resident_bytes: Column = NOTHING,
        free_bytes: Column = NOTHING,
        latency_microseconds: Column = NOTHING,
        states: Column = b"",
        processors: Column = NOTHING,
    ) -> None:
        self.sessions = _empty_uint32() if sessions is NOTHING else column("I", sessions)
        self.tasks = _empty_uint32() if tasks is NOTHING else column("I", tasks)
        self.queued = _empty_uint32() if queued is NOTHING else column("I", queued)
        self.sent = _empty_uint64() if sent is NOTHING else column("Q", sent)
        self.finished = _empty_uint64() if finished is NOTHING else column("Q", finished)
        self.failed = _empty_uint64() if failed is NOTHING else column("Q", failed)
        self.cpu_permille = _empty_uint32() if cpu_permille is NOTHING else column("I", cpu_permille)
        self.resident_bytes = _empty_uint64() if resident_bytes is NOTHING else column("Q", resident_bytes)
        self.free_bytes = _empty_uint64() if free_bytes is NOTHING else column("Q", free_bytes)
        self.latency_microseconds = (
            _empty_uint32() if latency_microseconds is NOTHING else column("I", latency_microseconds)
        )
        self.states = states if type(states) is bytes else octets(states)
        self.processors = _empty_uint32() if processors is NOTHING else column("I", processors)

    def write(self, writer: Writer, at: int) -> bytes:
        return _WORKER_COLUMNS_WORDS.pack(
            writer.column(self.sessions, "I", at) if self.sessions else 0,
            writer.column(self.tasks, "I", at + 1) if self.tasks else 0,
            writer.column(self.queued, "I", at + 2) if self.queued else 0,
            writer.column(self.sent, "Q", at + 3) if self.sent else 0,
            writer.column(self.finished, "Q", at + 4) if self.finished else 0,
            writer.column(self.failed, "Q", at + 5) if self.failed else 0,
            writer.column(self.cpu_permille, "I", at + 6) if self.cpu_permille else 0,
            writer.column(self.resident_bytes, "Q", at + 7) if self.resident_bytes else 0,
            writer.column(self.free_bytes, "Q", at + 8) if self.free_bytes else 0,
            writer.column(self.latency_microseconds, "I", at + 9) if self.latency_microseconds else 0,
            writer.octets(self.states, at + 10) if self.states else 0,
            writer.column(self.processors, "I", at + 11) if self.processors else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> WorkerColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 12:
            words = _WORKER_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _WORKER_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 12))
        (
            sessions,
            tasks,
            queued,
            sent,
            finished,
            failed,
            cpu_permille,
            resident_bytes,
            free_bytes,
            latency_microseconds,
            states,
            processors,
        ) = words
        at = start + data_words * 8
        self.sessions = reader.column(sessions, segment, at, "I", 4) if sessions else _empty_uint32()
        self.tasks = reader.column(tasks, segment, at + 8, "I", 4) if tasks else _empty_uint32()
        self.queued = reader.column(queued, segment, at + 16, "I", 4) if queued else _empty_uint32()
        self.sent = reader.column(sent, segment, at + 24, "Q", 8) if sent else _empty_uint64()
        self.finished = reader.column(finished, segment, at + 32, "Q", 8) if finished else _empty_uint64()
        self.failed = reader.column(failed, segment, at + 40, "Q", 8) if failed else _empty_uint64()
        self.cpu_permille = reader.column(cpu_permille, segment, at + 48, "I", 4) if cpu_permille else _empty_uint32()
        self.resident_bytes = (
            reader.column(resident_bytes, segment, at + 56, "Q", 8) if resident_bytes else _empty_uint64()
        )
        self.free_bytes = reader.column(free_bytes, segment, at + 64, "Q", 8) if free_bytes else _empty_uint64()
        self.latency_microseconds = (
            reader.column(latency_microseconds, segment, at + 72, "I", 4) if latency_microseconds else _empty_uint32()
        )
        self.states = reader.octets(states, segment, at + 80) if states else b""
        self.processors = reader.column(processors, segment, at + 88, "I", 4) if processors else _empty_uint32()
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self,
            "sessions",
            (
                "tasks",
                "queued",
                "sent",
                "finished",
                "failed",
                "cpu_permille",
                "resident_bytes",
                "free_bytes",
                "latency_microseconds",
                "states",
                "processors",
            ),
            (),
        )


_PROCESSOR_COLUMNS_WORDS = struct.Struct("<10Q")


class ProcessorColumns(Struct):
    __slots__ = (
        "workers",
        "process_ids",
        "states",
        "cpu_permille",
        "resident_bytes",
        "queued",
        "task_clients",
        "task_ids",
        "task_functions",
        "task_microseconds",
    )
    DATA_WORDS = 0
    POINTER_WORDS = 10

    workers: array[int]
    process_ids: array[int]
    states: bytes
    cpu_permille: array[int]
    resident_bytes: array[int]
    queued: array[int]
    task_clients: array[int]
    task_ids: array[int]
    task_functions: array[int]
    task_microseconds: array[int]

    def __init__(
        self,
        *,
        workers: Column = NOTHING,
        process_ids: Column = NOTHING,
        states: Column = b"",
        cpu_permille: Column = NOTHING,
        resident_bytes: Column = NOTHING,
        queued: Column = NOTHING,
        task_clients: Column = NOTHING,
        task_ids: Column = NOTHING,
        task_functions: Column = NOTHING,
        task_microseconds: Column = NOTHING,
    ) -> None:
        self.workers = _empty_uint32() if workers is NOTHING else column("I", workers)
        self.process_ids = _empty_uint32() if process_ids is NOTHING else column("I", process_ids)
        self.states = states if type(states) is bytes else octets(states)
        self.cpu_permille = _empty_uint32() if cpu_permille is NOTHING else column("I", cpu_permille)
        self.resident_bytes = _empty_uint64() if resident_bytes is NOTHING else column("Q", resident_bytes)
        self.queued = _empty_uint32() if queued is NOTHING else column("I", queued)
        self.task_clients = _empty_uint32() if task_clients is NOTHING else column("I", task_clients)
        self.task_ids = _empty_uint64() if task_ids is NOTHING else column("Q", task_ids)
        self.task_functions = _empty_uint32() if task_functions is NOTHING else column("I", task_functions)
        self.task_microseconds = _empty_uint64() if task_microseconds is NOTHING else column("Q", task_microseconds)

    def write(self, writer: Writer, at: int) -> bytes:
        return _PROCESSOR_COLUMNS_WORDS.pack(
            writer.column(self.workers, "I", at) if self.workers else 0,
            writer.column(self.process_ids, "I", at + 1) if self.process_ids else 0,
            writer.octets(self.states, at + 2) if self.states else 0,
            writer.column(self.cpu_permille, "I", at + 3) if self.cpu_permille else 0,
            writer.column(self.resident_bytes, "Q", at + 4) if self.resident_bytes else 0,
            writer.column(self.queued, "I", at + 5) if self.queued else 0,
            writer.column(self.task_clients, "I", at + 6) if self.task_clients else 0,
            writer.column(self.task_ids, "Q", at + 7) if self.task_ids else 0,
            writer.column(self.task_functions, "I", at + 8) if self.task_functions else 0,
            writer.column(self.task_microseconds, "Q", at + 9) if self.task_microseconds else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ProcessorColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 10:
            words = _PROCESSOR_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _PROCESSOR_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 10))
        (
            workers,
            process_ids,
            states,
            cpu_permille,
            resident_bytes,
            queued,
            task_clients,
            task_ids,
            task_functions,
            task_microseconds,
        ) = words
        at = start + data_words * 8
        self.workers = reader.column(workers, segment, at, "I", 4) if workers else _empty_uint32()
        self.process_ids = reader.column(process_ids, segment, at + 8, "I", 4) if process_ids else _empty_uint32()
        self.states = reader.octets(states, segment, at + 16) if states else b""
        self.cpu_permille = reader.column(cpu_permille, segment, at + 24, "I", 4) if cpu_permille else _empty_uint32()
        self.resident_bytes = (
            reader.column(resident_bytes, segment, at + 32, "Q", 8) if resident_bytes else _empty_uint64()
        )
        self.queued = reader.column(queued, segment, at + 40, "I", 4) if queued else _empty_uint32()
        self.task_clients = reader.column(task_clients, segment, at + 48, "I", 4) if task_clients else _empty_uint32()
        self.task_ids = reader.column(task_ids, segment, at + 56, "Q", 8) if task_ids else _empty_uint64()
        self.task_functions = (
            reader.column(task_functions, segment, at + 64, "I", 4) if task_functions else _empty_uint32()
        )
        self.task_microseconds = (
            reader.column(task_microseconds, segment, at + 72, "Q", 8) if task_microseconds else _empty_uint64()
        )
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self,
            "workers",
            (
                "process_ids",
                "states",
                "cpu_permille",
                "resident_bytes",
                "queued",
                "task_clients",
                "task_ids",
                "task_functions",
                "task_microseconds",
            ),
            (),
        )


_CLIENT_IDENTITY_WORDS = struct.Struct("<II3Q")


class ClientIdentity(Struct):
    __slots__ = ("session", "name", "host", "process_id", "implementation")
    DATA_WORDS = 1
    POINTER_WORDS = 3

    session: int
    name: str
    host: str
    process_id: int
    implementation: Implementation

    def __init__(
        self,
        *,
        session: int = 0,
        name: str = "",
        host: str = "",
        process_id: int = 0,
        implementation: Optional[Implementation] = None,
    ) -> None:
        self.session = session
        self.name = name
        self.host = host
        self.process_id = process_id
        self.implementation = Implementation() if implementation is None else implementation

    def write(self, writer: Writer, at: int) -> bytes:
        return _CLIENT_IDENTITY_WORDS.pack(
            self.session,
            self.process_id,
            writer.text(self.name, at) if self.name else 0,
            writer.text(self.host, at + 1) if self.host else 0,
            writer.struct(self.implementation, at + 2),
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ClientIdentity:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 3:
            words = _CLIENT_IDENTITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _CLIENT_IDENTITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 3))
        (
            self.session,
            self.process_id,
            name,
            host,
            implementation,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        self.host = reader.text(host, segment, at + 8) if host else ""
        self.implementation = (
            reader.struct(implementation, segment, at + 16, Implementation.read) if implementation else Implementation()
        )
        return self


_CLIENT_COLUMNS_WORDS = struct.Struct("<8Q")


class ClientColumns(Struct):
    __slots__ = ("sessions", "tasks", "finished", "failed", "canceled", "bytes_in_flight", "objects", "object_bytes")
    DATA_WORDS = 0
    POINTER_WORDS = 8

    sessions: array[int]
    tasks: array[int]
    finished: array[int]
    failed: array[int]
    canceled: array[int]
    bytes_in_flight: array[int]
    objects: array[int]
    object_bytes: array[int]

    def __init__(
        self,
        *,
        sessions: Column = NOTHING,
        tasks: Column = NOTHING,
        finished: Column = NOTHING,
        failed: Column = NOTHING,
        canceled: Column = NOTHING,
        bytes_in_flight: Column = NOTHING,
        objects: Column = NOTHING,
        object_bytes: Column = NOTHING,
    ) -> None:
        self.sessions = _empty_uint32() if sessions is NOTHING else column("I", sessions)
        self.tasks = _empty_uint64() if tasks is NOTHING else column("Q", tasks)
        self.finished = _empty_uint64() if finished is NOTHING else column("Q", finished)
        self.failed = _empty_uint64() if failed is NOTHING else column("Q", failed)
        self.canceled = _empty_uint64() if canceled is NOTHING else column("Q", canceled)
        self.bytes_in_flight = _empty_uint64() if bytes_in_flight is NOTHING else column("Q", bytes_in_flight)
        self.objects = _empty_uint64() if objects is NOTHING else column("Q", objects)
        self.object_bytes = _empty_uint64() if object_bytes is NOTHING else column("Q", object_bytes)

    def write(self, writer: Writer, at: int) -> bytes:
        return _CLIENT_COLUMNS_WORDS.pack(
            writer.column(self.sessions, "I", at) if self.sessions else 0,
            writer.column(self.tasks, "Q", at + 1) if self.tasks else 0,
            writer.column(self.finished, "Q", at + 2) if self.finished else 0,
            writer.column(self.failed, "Q", at + 3) if self.failed else 0,
            writer.column(self.canceled, "Q", at + 4) if self.canceled else 0,
            writer.column(self.bytes_in_flight, "Q", at + 5) if self.bytes_in_flight else 0,
            writer.column(self.objects, "Q", at + 6) if self.objects else 0,
            writer.column(self.object_bytes, "Q", at + 7) if self.object_bytes else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ClientColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 8:
            words = _CLIENT_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _CLIENT_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 8))
        (
            sessions,
            tasks,
            finished,
            failed,
            canceled,
            bytes_in_flight,
            objects,
            object_bytes,
        ) = words
        at = start + data_words * 8
        self.sessions = reader.column(sessions, segment, at, "I", 4) if sessions else _empty_uint32()
        self.tasks = reader.column(tasks, segment, at + 8, "Q", 8) if tasks else _empty_uint64()
        self.finished = reader.column(finished, segment, at + 16, "Q", 8) if finished else _empty_uint64()
        self.failed = reader.column(failed, segment, at + 24, "Q", 8) if failed else _empty_uint64()
        self.canceled = reader.column(canceled, segment, at + 32, "Q", 8) if canceled else _empty_uint64()
        self.bytes_in_flight = (
            reader.column(bytes_in_flight, segment, at + 40, "Q", 8) if bytes_in_flight else _empty_uint64()
        )
        self.objects = reader.column(objects, segment, at + 48, "Q", 8) if objects else _empty_uint64()
        self.object_bytes = reader.column(object_bytes, segment, at + 56, "Q", 8) if object_bytes else _empty_uint64()
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self,
            "sessions",
            ("tasks", "finished", "failed", "canceled", "bytes_in_flight", "objects", "object_bytes"),
            (),
        )


_FUNCTION_IDENTITY_WORDS = struct.Struct("<IIQ")


class FunctionIdentity(Struct):
    __slots__ = ("number", "name", "client")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    number: int
    name: str
    client: int

    def __init__(self, *, number: int = 0, name: str = "", client: int = 0) -> None:
        self.number = number
        self.name = name
        self.client = client

    def write(self, writer: Writer, at: int) -> bytes:
        return _FUNCTION_IDENTITY_WORDS.pack(
            self.number,
            self.client,
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> FunctionIdentity:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _FUNCTION_IDENTITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _FUNCTION_IDENTITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.number,
            self.client,
            name,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_FUNCTION_COLUMNS_WORDS = struct.Struct("<9Q")


class FunctionColumns(Struct):
    __slots__ = (
        "numbers",
        "finished",
        "failed",
        "busy_microseconds",
        "running",
        "waiting",
        "duration_counts",
        "duration_buckets",
        "duration_tasks",
    )
    DATA_WORDS = 0
    POINTER_WORDS = 9

    numbers: array[int]
    finished: array[int]
    failed: array[int]
    busy_microseconds: array[int]
    running: array[int]
    waiting: array[int]
    duration_counts: array[int]
    duration_buckets: bytes
    duration_tasks: array[int]

    def __init__(
        self,
        *,
        numbers: Column = NOTHING,
        finished: Column = NOTHING,
        failed: Column = NOTHING,
        busy_microseconds: Column = NOTHING,
        running: Column = NOTHING,
        waiting: Column = NOTHING,
        duration_counts: Column = NOTHING,
        duration_buckets: Column = b"",
        duration_tasks: Column = NOTHING,
    ) -> None:
        self.numbers = _empty_uint32() if numbers is NOTHING else column("I", numbers)
        self.finished = _empty_uint64() if finished is NOTHING else column("Q", finished)
        self.failed = _empty_uint64() if failed is NOTHING else column("Q", failed)
        self.busy_microseconds = _empty_uint64() if busy_microseconds is NOTHING else column("Q", busy_microseconds)
        self.running = _empty_uint32() if running is NOTHING else column("I", running)
        self.waiting = _empty_uint64() if waiting is NOTHING else column("Q", waiting)
        self.duration_counts = _empty_uint32() if duration_counts is NOTHING else column("I", duration_counts)
        self.duration_buckets = duration_buckets if type(duration_buckets) is bytes else octets(duration_buckets)
        self.duration_tasks = _empty_uint64() if duration_tasks is NOTHING else column("Q", duration_tasks)

    def write(self, writer: Writer, at: int) -> bytes:
        return _FUNCTION_COLUMNS_WORDS.pack(
            writer.column(self.numbers, "I", at) if self.numbers else 0,
            writer.column(self.finished, "Q", at + 1) if self.finished else 0,
            writer.column(self.failed, "Q", at + 2) if self.failed else 0,
            writer.column(self.busy_microseconds, "Q", at + 3) if self.busy_microseconds else 0,
            writer.column(self.running, "I", at + 4) if self.running else 0,
            writer.column(self.waiting, "Q", at + 5) if self.waiting else 0,
            writer.column(self.duration_counts, "I", at + 6) if self.duration_counts else 0,
            writer.octets(self.duration_buckets, at + 7) if self.duration_buckets else 0,
            writer.column(self.duration_tasks, "Q", at + 8) if self.duration_tasks else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> FunctionColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 9:
            words = _FUNCTION_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _FUNCTION_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 9))
        (
            numbers,
            finished,
            failed,
            busy_microseconds,
            running,
            waiting,
            duration_counts,
            duration_buckets,
            duration_tasks,
        ) = words
        at = start + data_words * 8
        self.numbers = reader.column(numbers, segment, at, "I", 4) if numbers else _empty_uint32()
        self.finished = reader.column(finished, segment, at + 8, "Q", 8) if finished else _empty_uint64()
        self.failed = reader.column(failed, segment, at + 16, "Q", 8) if failed else _empty_uint64()
        self.busy_microseconds = (
            reader.column(busy_microseconds, segment, at + 24, "Q", 8) if busy_microseconds else _empty_uint64()
        )
        self.running = reader.column(running, segment, at + 32, "I", 4) if running else _empty_uint32()
        self.waiting = reader.column(waiting, segment, at + 40, "Q", 8) if waiting else _empty_uint64()
        self.duration_counts = (
            reader.column(duration_counts, segment, at + 48, "I", 4) if duration_counts else _empty_uint32()
        )
        self.duration_buckets = reader.octets(duration_buckets, segment, at + 56) if duration_buckets else b""
        self.duration_tasks = (
            reader.column(duration_tasks, segment, at + 64, "Q", 8) if duration_tasks else _empty_uint64()
        )
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self, "numbers", ("finished", "failed", "busy_microseconds", "running", "waiting", "duration_counts"), ()
        )
        total = sum(self.duration_counts) if self.duration_counts else 0
        if total != len(self.duration_buckets):
            raise sum_differs(
                "FunctionColumns", "duration_counts", total, "duration_buckets", len(self.duration_buckets)
            )
        if total != len(self.duration_tasks):
            raise sum_differs("FunctionColumns", "duration_counts", total, "duration_tasks", len(self.duration_tasks))


_GRAPH_COLUMNS_WORDS = struct.Struct("<11Q")


class GraphColumns(Struct):
    __slots__ = (
        "numbers",
        "clients",
        "first_tasks",
        "nodes",
        "waiting",
        "queued",
        "running",
        "succeeded",
        "failed",
        "canceled",
        "started_unix_microseconds",
    )
    DATA_WORDS = 0
    POINTER_WORDS = 11

    numbers: array[int]
    clients: array[int]
    first_tasks: array[int]
    nodes: array[int]
    waiting: array[int]
    queued: array[int]
    running: array[int]
    succeeded: array[int]
    failed: array[int]
    canceled: array[int]
    started_unix_microseconds: array[int]

    def __init__(
        self,
        *,
        numbers: Column = NOTHING,
        clients: Column = NOTHING,
        first_tasks: Column = NOTHING,
        nodes: Column = NOTHING,
        waiting: Column = NOTHING,
        queued: Column = NOTHING,
        running: Column = NOTHING,
        succeeded: Column = NOTHING,
        failed: Column = NOTHING,
        canceled: Column = NOTHING,
        started_unix_microseconds: Column = NOTHING,
    ) -> None:
        self.numbers = _empty_uint64() if numbers is NOTHING else column("Q", numbers)
        self.clients = _empty_uint32() if clients is NOTHING else column("I", clients)
        self.first_tasks = _empty_uint64() if first_tasks is NOTHING else column("Q", first_tasks)
        self.nodes = _empty_uint32() if nodes is NOTHING else column("I", nodes)
        self.waiting = _empty_uint32() if waiting is NOTHING else column("I", waiting)
        self.queued = _empty_uint32() if queued is NOTHING else column("I", queued)
        self.running = _empty_uint32() if running is NOTHING else column("I", running)
        self.succeeded = _empty_uint32() if succeeded is NOTHING else column("I", succeeded)
        self.failed = _empty_uint32() if failed is NOTHING else column("I", failed)
        self.canceled = _empty_uint32() if canceled is NOTHING else column("I", canceled)
        self.started_unix_microseconds = (
            _empty_uint64() if started_unix_microseconds is NOTHING else column("Q", started_unix_microseconds)
        )

    def write(self, writer: Writer, at: int) -> bytes:
        return _GRAPH_COLUMNS_WORDS.pack(
            writer.column(self.numbers, "Q", at) if self.numbers else 0,
            writer.column(self.clients, "I", at + 1) if self.clients else 0,
            writer.column(self.first_tasks, "Q", at + 2) if self.first_tasks else 0,
            writer.column(self.nodes, "I", at + 3) if self.nodes else 0,
            writer.column(self.waiting, "I", at + 4) if self.waiting else 0,
            writer.column(self.queued, "I", at + 5) if self.queued else 0,
            writer.column(self.running, "I", at + 6) if self.running else 0,
            writer.column(self.succeeded, "I", at + 7) if self.succeeded else 0,
            writer.column(self.failed, "I", at + 8) if self.failed else 0,
            writer.column(self.canceled, "I", at + 9) if self.canceled else 0,
            writer.column(self.started_unix_microseconds, "Q", at + 10) if self.started_unix_microseconds else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> GraphColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 11:
            words = _GRAPH_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _GRAPH_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 11))
        (
            numbers,
            clients,
            first_tasks,
            nodes,
            waiting,
            queued,
            running,
            succeeded,
            failed,
            canceled,
            started_unix_microseconds,
        ) = words
        at = start + data_words * 8
        self.numbers = reader.column(numbers, segment, at, "Q", 8) if numbers else _empty_uint64()
        self.clients = reader.column(clients, segment, at + 8, "I", 4) if clients else _empty_uint32()
        self.first_tasks = reader.column(first_tasks, segment, at + 16, "Q", 8) if first_tasks else _empty_uint64()
        self.nodes = reader.column(nodes, segment, at + 24, "I", 4) if nodes else _empty_uint32()
        self.waiting = reader.column(waiting, segment, at + 32, "I", 4) if waiting else _empty_uint32()
        self.queued = reader.column(queued, segment, at + 40, "I", 4) if queued else _empty_uint32()
        self.running = reader.column(running, segment, at + 48, "I", 4) if running else _empty_uint32()
        self.succeeded = reader.column(succeeded, segment, at + 56, "I", 4) if succeeded else _empty_uint32()
        self.failed = reader.column(failed, segment, at + 64, "I", 4) if failed else _empty_uint32()
        self.canceled = reader.column(canceled, segment, at + 72, "I", 4) if canceled else _empty_uint32()
        self.started_unix_microseconds = (
            reader.column(started_unix_microseconds, segment, at + 80, "Q", 8)
            if started_unix_microseconds
            else _empty_uint64()
        )
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self,
            "numbers",
            (
                "clients",
                "first_tasks",
                "nodes",
                "waiting",
                "queued",
                "running",
                "succeeded",
                "failed",
                "canceled",
                "started_unix_microseconds",
            ),
            (),
        )


_OBJECT_IDENTITY_WORDS = struct.Struct("<QB7xQ")


class ObjectIdentity(Struct):
    __slots__ = ("id", "name", "kind")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    id: int
    name: str
    kind: int

    def __init__(self, *, id: int = 0, name: str = "", kind: int = 0) -> None:
        self.id = id
        self.name = name
        self.kind = kind

    def write(self, writer: Writer, at: int) -> bytes:
        return _OBJECT_IDENTITY_WORDS.pack(
            self.id,
            self.kind,
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ObjectIdentity:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _OBJECT_IDENTITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _OBJECT_IDENTITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.id,
            self.kind,
            name,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_OBJECT_COLUMNS_WORDS = struct.Struct("<4Q")


class ObjectColumns(Struct):
    __slots__ = ("ids", "owners", "sizes", "states")
    DATA_WORDS = 0
    POINTER_WORDS = 4

    ids: array[int]
    owners: array[int]
    sizes: array[int]
    states: bytes

    def __init__(
        self, *, ids: Column = NOTHING, owners: Column = NOTHING, sizes: Column = NOTHING, states: Column = b""
    ) -> None:
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)
        self.owners = _empty_uint32() if owners is NOTHING else column("I", owners)
        self.sizes = _empty_uint64() if sizes is NOTHING else column("Q", sizes)
        self.states = states if type(states) is bytes else octets(states)

    def write(self, writer: Writer, at: int) -> bytes:
        return _OBJECT_COLUMNS_WORDS.pack(
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.column(self.owners, "I", at + 1) if self.owners else 0,
            writer.column(self.sizes, "Q", at + 2) if self.sizes else 0,
            writer.octets(self.states, at + 3) if self.states else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ObjectColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 4:
            words = _OBJECT_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _OBJECT_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 4))
        (
            ids,
            owners,
            sizes,
            states,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.owners = reader.column(owners, segment, at + 8, "I", 4) if owners else _empty_uint32()
        self.sizes = reader.column(sizes, segment, at + 16, "Q", 8) if sizes else _empty_uint64()
        self.states = reader.octets(states, segment, at + 24) if states else b""
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(self, "ids", ("owners", "sizes", "states"), ())


_ACTOR_IDENTITY_WORDS = struct.Struct("<QI4xQ")


class ActorIdentity(Struct):
    __slots__ = ("id", "name", "client")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    id: int
    name: str
    client: int

    def __init__(self, *, id: int = 0, name: str = "", client: int = 0) -> None:
        self.id = id
        self.name = name
        self.client = client

    def write(self, writer: Writer, at: int) -> bytes:
        return _ACTOR_IDENTITY_WORDS.pack(
            self.id,
            self.client,
            writer.text(self.name, at) if self.name else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ActorIdentity:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _ACTOR_IDENTITY_WORDS.unpack_from(reader.data, start)
        else:
            words = _ACTOR_IDENTITY_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.id,
            self.client,
            name,
        ) = words
        at = start + data_words * 8
        self.name = reader.text(name, segment, at) if name else ""
        return self


_ACTOR_COLUMNS_WORDS = struct.Struct("<7Q")


class ActorColumns(Struct):
    __slots__ = ("ids", "workers", "waiting", "running", "finished", "failed", "states")
    DATA_WORDS = 0
    POINTER_WORDS = 7

    ids: array[int]
    workers: array[int]
    waiting: array[int]
    running: array[int]
    finished: array[int]
    failed: array[int]
    states: bytes

    def __init__(
        self,
        *,
        ids: Column = NOTHING,
        workers: Column = NOTHING,
        waiting: Column = NOTHING,
        running: Column = NOTHING,
        finished: Column = NOTHING,
        failed: Column = NOTHING,
        states: Column = b"",
    ) -> None:
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)
        self.workers = _empty_uint32() if workers is NOTHING else column("I", workers)
        self.waiting = _empty_uint64() if waiting is NOTHING else column("Q", waiting)
        self.running = _empty_uint64() if running is NOTHING else column("Q", running)
        self.finished = _empty_uint64() if finished is NOTHING else column("Q", finished)
        self.failed = _empty_uint64() if failed is NOTHING else column("Q", failed)
        self.states = states if type(states) is bytes else octets(states)

    def write(self, writer: Writer, at: int) -> bytes:
        return _ACTOR_COLUMNS_WORDS.pack(
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.column(self.workers, "I", at + 1) if self.workers else 0,
            writer.column(self.waiting, "Q", at + 2) if self.waiting else 0,
            writer.column(self.running, "Q", at + 3) if self.running else 0,
            writer.column(self.finished, "Q", at + 4) if self.finished else 0,
            writer.column(self.failed, "Q", at + 5) if self.failed else 0,
            writer.octets(self.states, at + 6) if self.states else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ActorColumns:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 7:
            words = _ACTOR_COLUMNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _ACTOR_COLUMNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 7))
        (
            ids,
            workers,
            waiting,
            running,
            finished,
            failed,
            states,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.workers = reader.column(workers, segment, at + 8, "I", 4) if workers else _empty_uint32()
        self.waiting = reader.column(waiting, segment, at + 16, "Q", 8) if waiting else _empty_uint64()
        self.running = reader.column(running, segment, at + 24, "Q", 8) if running else _empty_uint64()
        self.finished = reader.column(finished, segment, at + 32, "Q", 8) if finished else _empty_uint64()
        self.failed = reader.column(failed, segment, at + 40, "Q", 8) if failed else _empty_uint64()
        self.states = reader.octets(states, segment, at + 48) if states else b""
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(self, "ids", ("workers", "waiting", "running", "finished", "failed", "states"), ())


_LOST_ACTOR_WORDS = struct.Struct("<QQ")


class LostActor(Struct):
    __slots__ = ("id", "reason")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    id: int
    reason: str

    def __init__(self, *, id: int = 0, reason: str = "") -> None:
        self.id = id
        self.reason = reason

    def write(self, writer: Writer, at: int) -> bytes:
        return _LOST_ACTOR_WORDS.pack(
            self.id,
            writer.text(self.reason, at) if self.reason else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> LostActor:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _LOST_ACTOR_WORDS.unpack_from(reader.data, start)
        else:
            words = _LOST_ACTOR_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.id,
            reason,
        ) = words
        at = start + data_words * 8
        self.reason = reader.text(reason, segment, at) if reason else ""
        return self


_TASK_RUNS_WORDS = struct.Struct("<4QI4x13Q")


class TaskRuns(Struct):
    __slots__ = (
        "scheduler_id",
        "sequence",
        "unix_microseconds",
        "end_microseconds",
        "workers",
        "processors",
        "clients",
        "functions",
        "first_tasks",
        "counts",
        "statuses",
        "busy_microseconds",
        "peak_memory_bytes",
        "attempts",
        "failures",
        "omitted_runs",
        "omitted_tasks",
        "one_worker_of",
    )
    DATA_WORDS = 5
    POINTER_WORDS = 13

    scheduler_id: bytes
    sequence: int
    unix_microseconds: int
    end_microseconds: array[int]
    workers: array[int]
    processors: array[int]
    clients: array[int]
    functions: array[int]
    first_tasks: array[int]
    counts: array[int]
    statuses: bytes
    busy_microseconds: array[int]
    peak_memory_bytes: array[int]
    attempts: array[int]
    failures: List[FailedRun]
    omitted_runs: int
    omitted_tasks: int
    one_worker_of: int

    def __init__(
        self,
        *,
        scheduler_id: Union[bytes, bytearray, memoryview] = b"",
        sequence: int = 0,
        unix_microseconds: int = 0,
        end_microseconds: Column = NOTHING,
        workers: Column = NOTHING,
        processors: Column = NOTHING,
        clients: Column = NOTHING,
        functions: Column = NOTHING,
        first_tasks: Column = NOTHING,
        counts: Column = NOTHING,
        statuses: Column = b"",
        busy_microseconds: Column = NOTHING,
        peak_memory_bytes: Column = NOTHING,
        attempts: Column = NOTHING,
        failures: Iterable[FailedRun] = (),
        omitted_runs: int = 0,
        omitted_tasks: int = 0,
        one_worker_of: int = 0,
    ) -> None:
        self.scheduler_id = scheduler_id if type(scheduler_id) is bytes else octets(scheduler_id)
        self.sequence = sequence
        self.unix_microseconds = unix_microseconds
        self.end_microseconds = _empty_uint32() if end_microseconds is NOTHING else column("I", end_microseconds)
        self.workers = _empty_uint32() if workers is NOTHING else column("I", workers)
        self.processors = _empty_uint32() if processors is NOTHING else column("I", processors)
        self.clients = _empty_uint32() if clients is NOTHING else column("I", clients)
        self.functions = _empty_uint32() if functions is NOTHING else column("I", functions)
        self.first_tasks = _empty_uint64() if first_tasks is NOTHING else column("Q", first_tasks)
        self.counts = _empty_uint32() if counts is NOTHING else column("I", counts)
        self.statuses = statuses if type(statuses) is bytes else octets(statuses)
        self.busy_microseconds = _empty_uint64() if busy_microseconds is NOTHING else column("Q", busy_microseconds)
        self.peak_memory_bytes = _empty_uint64() if peak_memory_bytes is NOTHING else column("Q", peak_memory_bytes)
        self.attempts = _empty_uint16() if attempts is NOTHING else column("H", attempts)
        self.failures = list(failures)
        self.omitted_runs = omitted_runs
        self.omitted_tasks = omitted_tasks
        self.one_worker_of = one_worker_of

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_RUNS_WORDS.pack(
            self.sequence,
            self.unix_microseconds,
            self.omitted_runs,
            self.omitted_tasks,
            self.one_worker_of,
            writer.octets(self.scheduler_id, at) if self.scheduler_id else 0,
            writer.column(self.end_microseconds, "I", at + 1) if self.end_microseconds else 0,
            writer.column(self.workers, "I", at + 2) if self.workers else 0,
            writer.column(self.processors, "I", at + 3) if self.processors else 0,
            writer.column(self.clients, "I", at + 4) if self.clients else 0,
            writer.column(self.functions, "I", at + 5) if self.functions else 0,
            writer.column(self.first_tasks, "Q", at + 6) if self.first_tasks else 0,
            writer.column(self.counts, "I", at + 7) if self.counts else 0,
            writer.octets(self.statuses, at + 8) if self.statuses else 0,
            writer.column(self.busy_microseconds, "Q", at + 9) if self.busy_microseconds else 0,
            writer.column(self.peak_memory_bytes, "Q", at + 10) if self.peak_memory_bytes else 0,
            writer.column(self.attempts, "H", at + 11) if self.attempts else 0,
            writer.structs(self.failures, at + 12) if self.failures else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskRuns:
        self = cls.__new__(cls)
        if data_words == 5 and pointer_words == 13:
            words = _TASK_RUNS_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_RUNS_WORDS.unpack(reader.resized(start, data_words, pointer_words, 5, 13))
        (
            self.sequence,
            self.unix_microseconds,
            self.omitted_runs,
            self.omitted_tasks,
            self.one_worker_of,
            scheduler_id,
            end_microseconds,
            workers,
            processors,
            clients,
            functions,
            first_tasks,
            counts,
            statuses,
            busy_microseconds,
            peak_memory_bytes,
            attempts,
            failures,
        ) = words
        at = start + data_words * 8
        self.scheduler_id = reader.octets(scheduler_id, segment, at) if scheduler_id else b""
        self.end_microseconds = (
            reader.column(end_microseconds, segment, at + 8, "I", 4) if end_microseconds else _empty_uint32()
        )
        self.workers = reader.column(workers, segment, at + 16, "I", 4) if workers else _empty_uint32()
        self.processors = reader.column(processors, segment, at + 24, "I", 4) if processors else _empty_uint32()
        self.clients = reader.column(clients, segment, at + 32, "I", 4) if clients else _empty_uint32()
        self.functions = reader.column(functions, segment, at + 40, "I", 4) if functions else _empty_uint32()
        self.first_tasks = reader.column(first_tasks, segment, at + 48, "Q", 8) if first_tasks else _empty_uint64()
        self.counts = reader.column(counts, segment, at + 56, "I", 4) if counts else _empty_uint32()
        self.statuses = reader.octets(statuses, segment, at + 64) if statuses else b""
        self.busy_microseconds = (
            reader.column(busy_microseconds, segment, at + 72, "Q", 8) if busy_microseconds else _empty_uint64()
        )
        self.peak_memory_bytes = (
            reader.column(peak_memory_bytes, segment, at + 80, "Q", 8) if peak_memory_bytes else _empty_uint64()
        )
        self.attempts = reader.column(attempts, segment, at + 88, "H", 2) if attempts else _empty_uint16()
        self.failures = reader.structs(failures, segment, at + 96, FailedRun.read) if failures else []
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(
            self,
            "end_microseconds",
            (
                "workers",
                "processors",
                "clients",
                "functions",
                "first_tasks",
                "counts",
                "statuses",
                "busy_microseconds",
                "peak_memory_bytes",
                "attempts",
            ),
            (),
        )


_FAILED_RUN_WORDS = struct.Struct("<I4xQ")


class FailedRun(Struct):
    __slots__ = ("entry", "failure")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    entry: int
    failure: bytes

    def __init__(self, *, entry: int = 0, failure: Union[bytes, bytearray, memoryview] = b"") -> None:
        self.entry = entry
        self.failure = failure if type(failure) is bytes else octets(failure)

    def write(self, writer: Writer, at: int) -> bytes:
        return _FAILED_RUN_WORDS.pack(
            self.entry,
            writer.octets(self.failure, at) if self.failure else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> FailedRun:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _FAILED_RUN_WORDS.unpack_from(reader.data, start)
        else:
            words = _FAILED_RUN_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.entry,
            failure,
        ) = words
        at = start + data_words * 8
        self.failure = reader.octets(failure, segment, at) if failure else b""
        return self


_TASK_WORDS = struct.Struct("<QHxxI10Q")


class Task(SmallMessage):
    __slots__ = (
        "ids",
        "payload_sizes",
        "function",
        "function_name",
        "codec",
        "options",
        "dependency_counts",
        "dependencies",
        "attempt",
        "client",
        "parent_instance",
        "predecessor_counts",
        "predecessors",
    )
    DATA_WORDS = 3
    POINTER_WORDS = 9
    DATA_FORMAT = "QHxxIQ"
    CONTENTS = (
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["B"],
        COLUMN_KINDS["B"],
        (struct_pointer(0, TaskOptions.DATA_WORDS, TaskOptions.POINTER_WORDS), 0),
        COLUMN_KINDS["H"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["H"],
        COLUMN_KINDS["Q"],
    )

    ids: array[int]
    payload_sizes: array[int]
    function: int
    function_name: str
    codec: str
    options: TaskOptions
    dependency_counts: array[int]
    dependencies: array[int]
    attempt: int
    client: int
    parent_instance: int
    predecessor_counts: array[int]
    predecessors: array[int]

    def __init__(
        self,
        *,
        ids: Column = NOTHING,
        payload_sizes: Column = NOTHING,
        function: int = 0,
        function_name: str = "",
        codec: str = "",
        options: Optional[TaskOptions] = None,
        dependency_counts: Column = NOTHING,
        dependencies: Column = NOTHING,
        attempt: int = 0,
        client: int = 0,
        parent_instance: int = 0,
        predecessor_counts: Column = NOTHING,
        predecessors: Column = NOTHING,
    ) -> None:
        self.ids = (
            _empty_uint64()
            if ids is NOTHING
            else ids
            if type(ids) is array and ids.typecode == "Q"
            else column("Q", ids)
        )
        self.payload_sizes = (
            _empty_uint32()
            if payload_sizes is NOTHING
            else payload_sizes
            if type(payload_sizes) is array and payload_sizes.typecode == "I"
            else column("I", payload_sizes)
        )
        self.function = function
        self.function_name = function_name
        self.codec = codec
        self.options = TaskOptions() if options is None else options
        self.dependency_counts = _empty_uint16() if dependency_counts is NOTHING else column("H", dependency_counts)
        self.dependencies = _empty_uint64() if dependencies is NOTHING else column("Q", dependencies)
        self.attempt = attempt
        self.client = client
        self.parent_instance = parent_instance
        self.predecessor_counts = _empty_uint16() if predecessor_counts is NOTHING else column("H", predecessor_counts)
        self.predecessors = _empty_uint64() if predecessors is NOTHING else column("Q", predecessors)

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_WORDS.pack(
            self.function,
            self.attempt,
            self.client,
            self.parent_instance,
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.column(self.payload_sizes, "I", at + 1) if self.payload_sizes else 0,
            writer.text(self.function_name, at + 2) if self.function_name else 0,
            writer.text(self.codec, at + 3) if self.codec else 0,
            writer.struct(self.options, at + 4),
            writer.column(self.dependency_counts, "H", at + 5) if self.dependency_counts else 0,
            writer.column(self.dependencies, "Q", at + 6) if self.dependencies else 0,
            writer.column(self.predecessor_counts, "H", at + 7) if self.predecessor_counts else 0,
            writer.column(self.predecessors, "Q", at + 8) if self.predecessors else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Task:
        self = cls.__new__(cls)
        if data_words == 3 and pointer_words == 9:
            words = _TASK_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_WORDS.unpack(reader.resized(start, data_words, pointer_words, 3, 9))
        (
            self.function,
            self.attempt,
            self.client,
            self.parent_instance,
            ids,
            payload_sizes,
            function_name,
            codec,
            options,
            dependency_counts,
            dependencies,
            predecessor_counts,
            predecessors,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.payload_sizes = reader.column(payload_sizes, segment, at + 8, "I", 4) if payload_sizes else _empty_uint32()
        self.function_name = reader.text(function_name, segment, at + 16) if function_name else ""
        self.codec = reader.text(codec, segment, at + 24) if codec else ""
        self.options = reader.struct(options, segment, at + 32, TaskOptions.read) if options else TaskOptions()
        self.dependency_counts = (
            reader.column(dependency_counts, segment, at + 40, "H", 2) if dependency_counts else _empty_uint16()
        )
        self.dependencies = reader.column(dependencies, segment, at + 48, "Q", 8) if dependencies else _empty_uint64()
        self.predecessor_counts = (
            reader.column(predecessor_counts, segment, at + 56, "H", 2) if predecessor_counts else _empty_uint16()
        )
        self.predecessors = reader.column(predecessors, segment, at + 64, "Q", 8) if predecessors else _empty_uint64()
        return self

    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:
        ids = self.ids
        if ids and len(ids) > LARGEST_COUNT:
            return None
        payload_sizes = self.payload_sizes
        function_name = self.function_name
        codec = self.codec
        options = self.options
        dependency_counts = self.dependency_counts
        dependencies = self.dependencies
        predecessor_counts = self.predecessor_counts
        predecessors = self.predecessors
        flat_options = options.write_flat()
        if flat_options is None:
            return None
        return (
            (
                self.function,
                self.attempt,
                self.client,
                self.parent_instance,
            ),
            (
                (ids if type(ids) is array and ids.typecode == "Q" else column("Q", ids)).tobytes() if ids else b"",
                (
                    payload_sizes
                    if type(payload_sizes) is array and payload_sizes.typecode == "I"
                    else column("I", payload_sizes)
                ).tobytes()
                if payload_sizes
                else b"",
                ENCODED_TEXTS[function_name] if function_name else b"",
                ENCODED_TEXTS[codec] if codec else b"",
                flat_options,
                (column("H", dependency_counts)).tobytes() if dependency_counts else b"",
                (column("Q", dependencies)).tobytes() if dependencies else b"",
                (column("H", predecessor_counts)).tobytes() if predecessor_counts else b"",
                (column("Q", predecessors)).tobytes() if predecessors else b"",
            ),
        )

    @classmethod
    def read_small(cls, values: Tuple[Any, ...]) -> Optional[Task]:
        self = cls.__new__(cls)
        (
            _,
            self.function,
            self.attempt,
            self.client,
            self.parent_instance,
            _,
            ids,
            payload_sizes,
            function_name,
            codec,
            options,
            dependency_counts,
            dependencies,
            predecessor_counts,
            predecessors,
        ) = values
        self.ids = filled = _empty_uint64()
        filled.frombytes(ids)
        self.payload_sizes = filled = _empty_uint32()
        filled.frombytes(payload_sizes)
        read_function_name = DECODED_TEXTS[function_name] if function_name else ""
        if read_function_name is None:
            return None
        self.function_name = read_function_name
        read_codec = DECODED_TEXTS[codec] if codec else ""
        if read_codec is None:
            return None
        self.codec = read_codec
        read_options = TaskOptions.read_flat(options) if options else TaskOptions()
        if read_options is None:
            return None
        self.options = read_options
        self.dependency_counts = array("H", dependency_counts) if dependency_counts else _empty_uint16()
        self.dependencies = array("Q", dependencies) if dependencies else _empty_uint64()
        self.predecessor_counts = array("H", predecessor_counts) if predecessor_counts else _empty_uint16()
        self.predecessors = array("Q", predecessors) if predecessors else _empty_uint64()
        return self

    def check_columns(self, payload_bytes: int) -> None:
        """Raise MalformedMessageError unless the columns agree with each other.

        Parameters:
            payload_bytes: the length of the payload frame.
        """
        count = len(self.ids)
        if len(self.payload_sizes) != count:
            raise columns_differ("Task", "payload_sizes", self.payload_sizes, "ids", count)
        if self.dependency_counts and len(self.dependency_counts) != count:
            raise columns_differ("Task", "dependency_counts", self.dependency_counts, "ids", count)
        if self.predecessor_counts and len(self.predecessor_counts) != count:
            raise columns_differ("Task", "predecessor_counts", self.predecessor_counts, "ids", count)
        total = sum(self.dependency_counts) if self.dependency_counts else 0
        if total != len(self.dependencies):
            raise sum_differs("Task", "dependency_counts", total, "dependencies", len(self.dependencies))
        total = sum(self.predecessor_counts) if self.predecessor_counts else 0
        if total != len(self.predecessors):
            raise sum_differs("Task", "predecessor_counts", total, "predecessors", len(self.predecessors))
        total = sum(self.payload_sizes)
        if total != payload_bytes:
            raise sum_differs("Task", "payload_sizes", total, "the payload frame", payload_bytes)


_TASK_ECHO_WORDS = struct.Struct("<5Q")


class TaskEcho(Struct):
    __slots__ = ("accepted_up_to", "tasks_in_flight", "bytes_in_flight", "tasks_released", "bytes_released")
    DATA_WORDS = 5
    POINTER_WORDS = 0

    accepted_up_to: int
    tasks_in_flight: int
    bytes_in_flight: int
    tasks_released: int
    bytes_released: int

    def __init__(
        self,
        *,
        accepted_up_to: int = 0,
        tasks_in_flight: int = 0,
        bytes_in_flight: int = 0,
        tasks_released: int = 0,
        bytes_released: int = 0,
    ) -> None:
        self.accepted_up_to = accepted_up_to
        self.tasks_in_flight = tasks_in_flight
        self.bytes_in_flight = bytes_in_flight
        self.tasks_released = tasks_released
        self.bytes_released = bytes_released

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_ECHO_WORDS.pack(
            self.accepted_up_to,
            self.tasks_in_flight,
            self.bytes_in_flight,
            self.tasks_released,
            self.bytes_released,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskEcho:
        self = cls.__new__(cls)
        if data_words == 5 and pointer_words == 0:
            words = _TASK_ECHO_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_ECHO_WORDS.unpack(reader.resized(start, data_words, pointer_words, 5, 0))
        (
            self.accepted_up_to,
            self.tasks_in_flight,
            self.bytes_in_flight,
            self.tasks_released,
            self.bytes_released,
        ) = words
        return self


_TASK_RESULT_WORDS = struct.Struct("<11Q")


class TaskResult(SmallMessage):
    __slots__ = (
        "ids",
        "statuses",
        "payload_sizes",
        "codec",
        "objects",
        "busy_microseconds",
        "durations_microseconds",
        "cpu_microseconds",
        "peak_memory_bytes",
        "causes",
        "runs",
    )
    DATA_WORDS = 1
    POINTER_WORDS = 10
    DATA_FORMAT = "Q"
    CONTENTS = (
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["B"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["B"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["Q"],
    )

    ids: array[int]
    statuses: bytes
    payload_sizes: array[int]
    codec: str
    objects: array[int]
    busy_microseconds: int
    durations_microseconds: array[int]
    cpu_microseconds: array[int]
    peak_memory_bytes: array[int]
    causes: array[int]
    runs: array[int]

    def __init__(
        self,
        *,
        ids: Column = NOTHING,
        statuses: Column = b"",
        payload_sizes: Column = NOTHING,
        codec: str = "",
        objects: Column = NOTHING,
        busy_microseconds: int = 0,
        durations_microseconds: Column = NOTHING,
        cpu_microseconds: Column = NOTHING,
        peak_memory_bytes: Column = NOTHING,
        causes: Column = NOTHING,
        runs: Column = NOTHING,
    ) -> None:
        self.ids = (
            _empty_uint64()
            if ids is NOTHING
            else ids
            if type(ids) is array and ids.typecode == "Q"
            else column("Q", ids)
        )
        self.statuses = statuses if type(statuses) is bytes else octets(statuses)
        self.payload_sizes = (
            _empty_uint32()
            if payload_sizes is NOTHING
            else payload_sizes
            if type(payload_sizes) is array and payload_sizes.typecode == "I"
            else column("I", payload_sizes)
        )
        self.codec = codec
        self.objects = _empty_uint64() if objects is NOTHING else column("Q", objects)
        self.busy_microseconds = busy_microseconds
        self.durations_microseconds = (
            _empty_uint64() if durations_microseconds is NOTHING else column("Q", durations_microseconds)
        )
        self.cpu_microseconds = _empty_uint64() if cpu_microseconds is NOTHING else column("Q", cpu_microseconds)
        self.peak_memory_bytes = _empty_uint64() if peak_memory_bytes is NOTHING else column("Q", peak_memory_bytes)
        self.causes = _empty_uint64() if causes is NOTHING else column("Q", causes)
        self.runs = _empty_uint64() if runs is NOTHING else column("Q", runs)

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_RESULT_WORDS.pack(
            self.busy_microseconds,
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.octets(self.statuses, at + 1) if self.statuses else 0,
            writer.column(self.payload_sizes, "I", at + 2) if self.payload_sizes else 0,
            writer.text(self.codec, at + 3) if self.codec else 0,
            writer.column(self.objects, "Q", at + 4) if self.objects else 0,
            writer.column(self.durations_microseconds, "Q", at + 5) if self.durations_microseconds else 0,
            writer.column(self.cpu_microseconds, "Q", at + 6) if self.cpu_microseconds else 0,
            writer.column(self.peak_memory_bytes, "Q", at + 7) if self.peak_memory_bytes else 0,
            writer.column(self.causes, "Q", at + 8) if self.causes else 0,
            writer.column(self.runs, "Q", at + 9) if self.runs else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskResult:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 10:
            words = _TASK_RESULT_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_RESULT_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 10))
        (
            self.busy_microseconds,
            ids,
            statuses,
            payload_sizes,
            codec,
            objects,
            durations_microseconds,
            cpu_microseconds,
            peak_memory_bytes,
            causes,
            runs,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.statuses = reader.octets(statuses, segment, at + 8) if statuses else b""
        self.payload_sizes = (
            reader.column(payload_sizes, segment, at + 16, "I", 4) if payload_sizes else _empty_uint32()
        )
        self.codec = reader.text(codec, segment, at + 24) if codec else ""
        self.objects = reader.column(objects, segment, at + 32, "Q", 8) if objects else _empty_uint64()
        self.durations_microseconds = (
            reader.column(durations_microseconds, segment, at + 40, "Q", 8)
            if durations_microseconds
            else _empty_uint64()
        )
        self.cpu_microseconds = (
            reader.column(cpu_microseconds, segment, at + 48, "Q", 8) if cpu_microseconds else _empty_uint64()
        )
        self.peak_memory_bytes = (
            reader.column(peak_memory_bytes, segment, at + 56, "Q", 8) if peak_memory_bytes else _empty_uint64()
        )
        self.causes = reader.column(causes, segment, at + 64, "Q", 8) if causes else _empty_uint64()
        self.runs = reader.column(runs, segment, at + 72, "Q", 8) if runs else _empty_uint64()
        return self

    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:
        ids = self.ids
        if ids and len(ids) > LARGEST_COUNT:
            return None
        statuses = self.statuses
        payload_sizes = self.payload_sizes
        codec = self.codec
        objects = self.objects
        durations_microseconds = self.durations_microseconds
        cpu_microseconds = self.cpu_microseconds
        peak_memory_bytes = self.peak_memory_bytes
        causes = self.causes
        runs = self.runs
        return (
            (self.busy_microseconds,),
            (
                (ids if type(ids) is array and ids.typecode == "Q" else column("Q", ids)).tobytes() if ids else b"",
                (statuses if type(statuses) is bytes else octets(statuses)) if statuses else b"",
                (
                    payload_sizes
                    if type(payload_sizes) is array and payload_sizes.typecode == "I"
                    else column("I", payload_sizes)
                ).tobytes()
                if payload_sizes
                else b"",
                ENCODED_TEXTS[codec] if codec else b"",
                (column("Q", objects)).tobytes() if objects else b"",
                (column("Q", durations_microseconds)).tobytes() if durations_microseconds else b"",
                (column("Q", cpu_microseconds)).tobytes() if cpu_microseconds else b"",
                (column("Q", peak_memory_bytes)).tobytes() if peak_memory_bytes else b"",
                (column("Q", causes)).tobytes() if causes else b"",
                (column("Q", runs)).tobytes() if runs else b"",
            ),
        )

    @classmethod
    def read_small(cls, values: Tuple[Any, ...]) -> Optional[TaskResult]:
        self = cls.__new__(cls)
        (
            _,
            self.busy_microseconds,
            _,
            ids,
            statuses,
            payload_sizes,
            codec,
            objects,
            durations_microseconds,
            cpu_microseconds,
            peak_memory_bytes,
            causes,
            runs,
        ) = values
        self.ids = filled = _empty_uint64()
        filled.frombytes(ids)
        self.statuses = statuses
        self.payload_sizes = filled = _empty_uint32()
        filled.frombytes(payload_sizes)
        read_codec = DECODED_TEXTS[codec] if codec else ""
        if read_codec is None:
            return None
        self.codec = read_codec
        self.objects = array("Q", objects) if objects else _empty_uint64()
        self.durations_microseconds = array("Q", durations_microseconds) if durations_microseconds else _empty_uint64()
        self.cpu_microseconds = array("Q", cpu_microseconds) if cpu_microseconds else _empty_uint64()
        self.peak_memory_bytes = array("Q", peak_memory_bytes) if peak_memory_bytes else _empty_uint64()
        self.causes = array("Q", causes) if causes else _empty_uint64()
        self.runs = array("Q", runs) if runs else _empty_uint64()
        return self

    def check_columns(self, payload_bytes: int) -> None:
        """Raise MalformedMessageError unless the columns agree with each other.

        Parameters:
            payload_bytes: the length of the payload frame.
        """
        count = len(self.ids)
        if len(self.payload_sizes) != count:
            raise columns_differ("TaskResult", "payload_sizes", self.payload_sizes, "ids", count)
        if self.statuses and len(self.statuses) != count:
            raise columns_differ("TaskResult", "statuses", self.statuses, "ids", count)
        if self.objects and len(self.objects) != count:
            raise columns_differ("TaskResult", "objects", self.objects, "ids", count)
        if self.durations_microseconds and len(self.durations_microseconds) != count:
            raise columns_differ("TaskResult", "durations_microseconds", self.durations_microseconds, "ids", count)
        if self.cpu_microseconds and len(self.cpu_microseconds) != count:
            raise columns_differ("TaskResult", "cpu_microseconds", self.cpu_microseconds, "ids", count)
        if self.peak_memory_bytes and len(self.peak_memory_bytes) != count:
            raise columns_differ("TaskResult", "peak_memory_bytes", self.peak_memory_bytes, "ids", count)
        if self.causes and len(self.causes) != count:
            raise columns_differ("TaskResult", "causes", self.causes, "ids", count)
        total = sum(self.payload_sizes)
        if total != payload_bytes:
            raise sum_differs("TaskResult", "payload_sizes", total, "the payload frame", payload_bytes)


_TASK_CANCEL_WORDS = struct.Struct("<B7xQ")


class TaskCancel(Struct):
    __slots__ = ("ids", "force")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    ids: array[int]
    force: bool

    def __init__(self, *, ids: Column = NOTHING, force: bool = False) -> None:
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)
        self.force = force

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_CANCEL_WORDS.pack(
            (1 if self.force else 0),
            writer.column(self.ids, "Q", at) if self.ids else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskCancel:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _TASK_CANCEL_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_CANCEL_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            flags_0,
            ids,
        ) = words
        self.force = flags_0 & 1 != 0
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        return self


_TASK_CANCEL_CONFIRM_WORDS = struct.Struct("<QQ")


class TaskCancelConfirm(Struct):
    __slots__ = ("ids", "outcomes")
    DATA_WORDS = 0
    POINTER_WORDS = 2

    ids: array[int]
    outcomes: bytes

    def __init__(self, *, ids: Column = NOTHING, outcomes: Column = b"") -> None:
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)
        self.outcomes = outcomes if type(outcomes) is bytes else octets(outcomes)

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_CANCEL_CONFIRM_WORDS.pack(
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.octets(self.outcomes, at + 1) if self.outcomes else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskCancelConfirm:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 2:
            words = _TASK_CANCEL_CONFIRM_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_CANCEL_CONFIRM_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 2))
        (
            ids,
            outcomes,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.outcomes = reader.octets(outcomes, segment, at + 8) if outcomes else b""
        return self

    def check_columns(self) -> None:
        """Raise MalformedMessageError unless the columns agree with each other."""
        check_lengths(self, "ids", ("outcomes",), ())


_TASK_LOG_WORDS = struct.Struct("<QB7xQ")


class TaskLog(Struct):
    __slots__ = ("id", "stream", "text")
    DATA_WORDS = 2
    POINTER_WORDS = 1

    id: int
    stream: int
    text: str

    def __init__(self, *, id: int = 0, stream: int = 0, text: str = "") -> None:
        self.id = id
        self.stream = stream
        self.text = text

    def write(self, writer: Writer, at: int) -> bytes:
        return _TASK_LOG_WORDS.pack(
            self.id,
            self.stream,
            writer.text(self.text, at) if self.text else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> TaskLog:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 1:
            words = _TASK_LOG_WORDS.unpack_from(reader.data, start)
        else:
            words = _TASK_LOG_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 1))
        (
            self.id,
            self.stream,
            text,
        ) = words
        at = start + data_words * 8
        self.text = reader.text(text, segment, at) if text else ""
        return self


_EXPLANATION_REQUEST_WORDS = struct.Struct("<QQ")


class ExplanationRequest(Struct):
    __slots__ = ("request_id", "task_id")
    DATA_WORDS = 2
    POINTER_WORDS = 0

    request_id: int
    task_id: int

    def __init__(self, *, request_id: int = 0, task_id: int = 0) -> None:
        self.request_id = request_id
        self.task_id = task_id

    def write(self, writer: Writer, at: int) -> bytes:
        return _EXPLANATION_REQUEST_WORDS.pack(
            self.request_id,
            self.task_id,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> ExplanationRequest:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 0:
            words = _EXPLANATION_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _EXPLANATION_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 0))
        (
            self.request_id,
            self.task_id,
        ) = words
        return self


_EXPLANATION_WORDS = struct.Struct("<QQ")


class Explanation(Struct):
    __slots__ = ("request_id", "text")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    request_id: int
    text: str

    def __init__(self, *, request_id: int = 0, text: str = "") -> None:
        self.request_id = request_id
        self.text = text

    def write(self, writer: Writer, at: int) -> bytes:
        return _EXPLANATION_WORDS.pack(
            self.request_id,
            writer.text(self.text, at) if self.text else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Explanation:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _EXPLANATION_WORDS.unpack_from(reader.data, start)
        else:
            words = _EXPLANATION_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.request_id,
            text,
        ) = words
        at = start + data_words * 8
        self.text = reader.text(text, segment, at) if text else ""
        return self


_GRAPH_TASK_WORDS = struct.Struct("<10Q")


class GraphTask(SmallMessage):
    __slots__ = (
        "ids",
        "payload_sizes",
        "functions",
        "predecessor_offsets",
        "predecessors",
        "targets",
        "codec",
        "options",
        "dependency_counts",
        "dependencies",
    )
    DATA_WORDS = 0
    POINTER_WORDS = 10
    DATA_FORMAT = ""
    CONTENTS = (
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["Q"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["I"],
        COLUMN_KINDS["B"],
        (struct_pointer(0, TaskOptions.DATA_WORDS, TaskOptions.POINTER_WORDS), 0),
        COLUMN_KINDS["H"],
        COLUMN_KINDS["Q"],
    )

    ids: array[int]
    payload_sizes: array[int]
    functions: array[int]
    predecessor_offsets: array[int]
    predecessors: array[int]
    targets: array[int]
    codec: str
    options: TaskOptions
    dependency_counts: array[int]
    dependencies: array[int]

    def __init__(
        self,
        *,
        ids: Column = NOTHING,
        payload_sizes: Column = NOTHING,
        functions: Column = NOTHING,
        predecessor_offsets: Column = NOTHING,
        predecessors: Column = NOTHING,
        targets: Column = NOTHING,
        codec: str = "",
        options: Optional[TaskOptions] = None,
        dependency_counts: Column = NOTHING,
        dependencies: Column = NOTHING,
    ) -> None:
        self.ids = (
            _empty_uint64()
            if ids is NOTHING
            else ids
            if type(ids) is array and ids.typecode == "Q"
            else column("Q", ids)
        )
        self.payload_sizes = (
            _empty_uint32()
            if payload_sizes is NOTHING
            else payload_sizes
            if type(payload_sizes) is array and payload_sizes.typecode == "I"
            else column("I", payload_sizes)
        )
        self.functions = _empty_uint64() if functions is NOTHING else column("Q", functions)
        self.predecessor_offsets = (
            _empty_uint32() if predecessor_offsets is NOTHING else column("I", predecessor_offsets)
        )
        self.predecessors = _empty_uint32() if predecessors is NOTHING else column("I", predecessors)
        self.targets = _empty_uint32() if targets is NOTHING else column("I", targets)
        self.codec = codec
        self.options = TaskOptions() if options is None else options
        self.dependency_counts = _empty_uint16() if dependency_counts is NOTHING else column("H", dependency_counts)
        self.dependencies = _empty_uint64() if dependencies is NOTHING else column("Q", dependencies)

    def write(self, writer: Writer, at: int) -> bytes:
        return _GRAPH_TASK_WORDS.pack(
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.column(self.payload_sizes, "I", at + 1) if self.payload_sizes else 0,
            writer.column(self.functions, "Q", at + 2) if self.functions else 0,
            writer.column(self.predecessor_offsets, "I", at + 3) if self.predecessor_offsets else 0,
            writer.column(self.predecessors, "I", at + 4) if self.predecessors else 0,
            writer.column(self.targets, "I", at + 5) if self.targets else 0,
            writer.text(self.codec, at + 6) if self.codec else 0,
            writer.struct(self.options, at + 7),
            writer.column(self.dependency_counts, "H", at + 8) if self.dependency_counts else 0,
            writer.column(self.dependencies, "Q", at + 9) if self.dependencies else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> GraphTask:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 10:
            words = _GRAPH_TASK_WORDS.unpack_from(reader.data, start)
        else:
            words = _GRAPH_TASK_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 10))
        (
            ids,
            payload_sizes,
            functions,
            predecessor_offsets,
            predecessors,
            targets,
            codec,
            options,
            dependency_counts,
            dependencies,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.payload_sizes = reader.column(payload_sizes, segment, at + 8, "I", 4) if payload_sizes else _empty_uint32()
        self.functions = reader.column(functions, segment, at + 16, "Q", 8) if functions else _empty_uint64()
        self.predecessor_offsets = (
            reader.column(predecessor_offsets, segment, at + 24, "I", 4) if predecessor_offsets else _empty_uint32()
        )
        self.predecessors = reader.column(predecessors, segment, at + 32, "I", 4) if predecessors else _empty_uint32()
        self.targets = reader.column(targets, segment, at + 40, "I", 4) if targets else _empty_uint32()
        self.codec = reader.text(codec, segment, at + 48) if codec else ""
        self.options = reader.struct(options, segment, at + 56, TaskOptions.read) if options else TaskOptions()
        self.dependency_counts = (
            reader.column(dependency_counts, segment, at + 64, "H", 2) if dependency_counts else _empty_uint16()
        )
        self.dependencies = reader.column(dependencies, segment, at + 72, "Q", 8) if dependencies else _empty_uint64()
        return self

    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:
        ids = self.ids
        if ids and len(ids) > LARGEST_COUNT:
            return None
        payload_sizes = self.payload_sizes
        functions = self.functions
        predecessor_offsets = self.predecessor_offsets
        predecessors = self.predecessors
        targets = self.targets
        codec = self.codec
        options = self.options
        dependency_counts = self.dependency_counts
        dependencies = self.dependencies
        flat_options = options.write_flat()
        if flat_options is None:
            return None
        return (
            (),
            (
                (ids if type(ids) is array and ids.typecode == "Q" else column("Q", ids)).tobytes() if ids else b"",
                (
                    payload_sizes
                    if type(payload_sizes) is array and payload_sizes.typecode == "I"
                    else column("I", payload_sizes)
                ).tobytes()
                if payload_sizes
                else b"",
                (column("Q", functions)).tobytes() if functions else b"",
                (column("I", predecessor_offsets)).tobytes() if predecessor_offsets else b"",
                (column("I", predecessors)).tobytes() if predecessors else b"",
                (column("I", targets)).tobytes() if targets else b"",
                ENCODED_TEXTS[codec] if codec else b"",
                flat_options,
                (column("H", dependency_counts)).tobytes() if dependency_counts else b"",
                (column("Q", dependencies)).tobytes() if dependencies else b"",
            ),
        )

    @classmethod
    def read_small(cls, values: Tuple[Any, ...]) -> Optional[GraphTask]:
        self = cls.__new__(cls)
        (
            _,
            _,
            ids,
            payload_sizes,
            functions,
            predecessor_offsets,
            predecessors,
            targets,
            codec,
            options,
            dependency_counts,
            dependencies,
        ) = values
        self.ids = filled = _empty_uint64()
        filled.frombytes(ids)
        self.payload_sizes = filled = _empty_uint32()
        filled.frombytes(payload_sizes)
        self.functions = array("Q", functions) if functions else _empty_uint64()
        self.predecessor_offsets = array("I", predecessor_offsets) if predecessor_offsets else _empty_uint32()
        self.predecessors = array("I", predecessors) if predecessors else _empty_uint32()
        self.targets = array("I", targets) if targets else _empty_uint32()
        read_codec = DECODED_TEXTS[codec] if codec else ""
        if read_codec is None:
            return None
        self.codec = read_codec
        read_options = TaskOptions.read_flat(options) if options else TaskOptions()
        if read_options is None:
            return None
        self.options = read_options
        self.dependency_counts = array("H", dependency_counts) if dependency_counts else _empty_uint16()
        self.dependencies = array("Q", dependencies) if dependencies else _empty_uint64()
        return self

    def check_columns(self, payload_bytes: int) -> None:
        """Raise MalformedMessageError unless the columns agree with each other.

        Parameters:
            payload_bytes: the length of the payload frame.
        """
        count = len(self.ids)
        if len(self.payload_sizes) != count:
            raise columns_differ("GraphTask", "payload_sizes", self.payload_sizes, "ids", count)
        if len(self.functions) != count:
            raise columns_differ("GraphTask", "functions", self.functions, "ids", count)
        if self.dependency_counts and len(self.dependency_counts) != count:
            raise columns_differ("GraphTask", "dependency_counts", self.dependency_counts, "ids", count)
        total = sum(self.dependency_counts) if self.dependency_counts else 0
        if total != len(self.dependencies):
            raise sum_differs("GraphTask", "dependency_counts", total, "dependencies", len(self.dependencies))
        total = sum(self.payload_sizes)
        if total != payload_bytes:
            raise sum_differs("GraphTask", "payload_sizes", total, "the payload frame", payload_bytes)


_GRAPH_TASK_RESULT_WORDS = struct.Struct("<5Q")


class GraphTaskResult(SmallMessage):
    __slots__ = ("ids", "statuses", "payload_sizes", "codec", "objects")
    DATA_WORDS = 0
    POINTER_WORDS = 5
    DATA_FORMAT = ""
    CONTENTS = (COLUMN_KINDS["Q"], COLUMN_KINDS["B"], COLUMN_KINDS["I"], COLUMN_KINDS["B"], COLUMN_KINDS["Q"])

    ids: array[int]
    statuses: bytes
    payload_sizes: array[int]
    codec: str
    objects: array[int]

    def __init__(
        self,
        *,
        ids: Column = NOTHING,
        statuses: Column = b"",
        payload_sizes: Column = NOTHING,
        codec: str = "",
        objects: Column = NOTHING,
    ) -> None:
        self.ids = (
            _empty_uint64()
            if ids is NOTHING
            else ids
            if type(ids) is array and ids.typecode == "Q"
            else column("Q", ids)
        )
        self.statuses = statuses if type(statuses) is bytes else octets(statuses)
        self.payload_sizes = (
            _empty_uint32()
            if payload_sizes is NOTHING
            else payload_sizes
            if type(payload_sizes) is array and payload_sizes.typecode == "I"
            else column("I", payload_sizes)
        )
        self.codec = codec
        self.objects = _empty_uint64() if objects is NOTHING else column("Q", objects)

    def write(self, writer: Writer, at: int) -> bytes:
        return _GRAPH_TASK_RESULT_WORDS.pack(
            writer.column(self.ids, "Q", at) if self.ids else 0,
            writer.octets(self.statuses, at + 1) if self.statuses else 0,
            writer.column(self.payload_sizes, "I", at + 2) if self.payload_sizes else 0,
            writer.text(self.codec, at + 3) if self.codec else 0,
            writer.column(self.objects, "Q", at + 4) if self.objects else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> GraphTaskResult:
        self = cls.__new__(cls)
        if data_words == 0 and pointer_words == 5:
            words = _GRAPH_TASK_RESULT_WORDS.unpack_from(reader.data, start)
        else:
            words = _GRAPH_TASK_RESULT_WORDS.unpack(reader.resized(start, data_words, pointer_words, 0, 5))
        (
            ids,
            statuses,
            payload_sizes,
            codec,
            objects,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        self.statuses = reader.octets(statuses, segment, at + 8) if statuses else b""
        self.payload_sizes = (
            reader.column(payload_sizes, segment, at + 16, "I", 4) if payload_sizes else _empty_uint32()
        )
        self.codec = reader.text(codec, segment, at + 24) if codec else ""
        self.objects = reader.column(objects, segment, at + 32, "Q", 8) if objects else _empty_uint64()
        return self

    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:
        ids = self.ids
        if ids and len(ids) > LARGEST_COUNT:
            return None
        statuses = self.statuses
        payload_sizes = self.payload_sizes
        codec = self.codec
        objects = self.objects
        return (
            (),
            (
                (ids if type(ids) is array and ids.typecode == "Q" else column("Q", ids)).tobytes() if ids else b"",
                (statuses if type(statuses) is bytes else octets(statuses)) if statuses else b"",
                (
                    payload_sizes
                    if type(payload_sizes) is array and payload_sizes.typecode == "I"
                    else column("I", payload_sizes)
                ).tobytes()
                if payload_sizes
                else b"",
                ENCODED_TEXTS[codec] if codec else b"",
                (column("Q", objects)).tobytes() if objects else b"",
            ),
        )

    @classmethod
    def read_small(cls, values: Tuple[Any, ...]) -> Optional[GraphTaskResult]:
        self = cls.__new__(cls)
        (
            _,
            _,
            ids,
            statuses,
            payload_sizes,
            codec,
            objects,
        ) = values
        self.ids = filled = _empty_uint64()
        filled.frombytes(ids)
        self.statuses = statuses
        self.payload_sizes = filled = _empty_uint32()
        filled.frombytes(payload_sizes)
        read_codec = DECODED_TEXTS[codec] if codec else ""
        if read_codec is None:
            return None
        self.codec = read_codec
        self.objects = array("Q", objects) if objects else _empty_uint64()
        return self

    def check_columns(self, payload_bytes: int) -> None:
        """Raise MalformedMessageError unless the columns agree with each other.

        Parameters:
            payload_bytes: the length of the payload frame.
        """
        count = len(self.ids)
        if len(self.payload_sizes) != count:
            raise columns_differ("GraphTaskResult", "payload_sizes", self.payload_sizes, "ids", count)
        if self.statuses and len(self.statuses) != count:
            raise columns_differ("GraphTaskResult", "statuses", self.statuses, "ids", count)
        if self.objects and len(self.objects) != count:
            raise columns_differ("GraphTaskResult", "objects", self.objects, "ids", count)
        total = sum(self.payload_sizes)
        if total != payload_bytes:
            raise sum_differs("GraphTaskResult", "payload_sizes", total, "the payload frame", payload_bytes)


_BALANCE_REQUEST_WORDS = struct.Struct("<QI4x")


class BalanceRequest(Struct):
    __slots__ = ("request_id", "count")
    DATA_WORDS = 2
    POINTER_WORDS = 0

    request_id: int
    count: int

    def __init__(self, *, request_id: int = 0, count: int = 0) -> None:
        self.request_id = request_id
        self.count = count

    def write(self, writer: Writer, at: int) -> bytes:
        return _BALANCE_REQUEST_WORDS.pack(
            self.request_id,
            self.count,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> BalanceRequest:
        self = cls.__new__(cls)
        if data_words == 2 and pointer_words == 0:
            words = _BALANCE_REQUEST_WORDS.unpack_from(reader.data, start)
        else:
            words = _BALANCE_REQUEST_WORDS.unpack(reader.resized(start, data_words, pointer_words, 2, 0))
        (
            self.request_id,
            self.count,
        ) = words
        return self


_BALANCE_RESPONSE_WORDS = struct.Struct("<QQ")


class BalanceResponse(Struct):
    __slots__ = ("request_id", "ids")
    DATA_WORDS = 1
    POINTER_WORDS = 1

    request_id: int
    ids: array[int]

    def __init__(self, *, request_id: int = 0, ids: Column = NOTHING) -> None:
        self.request_id = request_id
        self.ids = _empty_uint64() if ids is NOTHING else column("Q", ids)

    def write(self, writer: Writer, at: int) -> bytes:
        return _BALANCE_RESPONSE_WORDS.pack(
            self.request_id,
            writer.column(self.ids, "Q", at) if self.ids else 0,
        )

    @classmethod
    def read(cls, reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> BalanceResponse:
        self = cls.__new__(cls)
        if data_words == 1 and pointer_words == 1:
            words = _BALANCE_RESPONSE_WORDS.unpack_from(reader.data, start)
        else:
            words = _BALANCE_RESPONSE_WORDS.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
        (
            self.request_id,
            ids,
        ) = words
        at = start + data_words * 8
        self.ids = reader.column(ids, segment, at, "Q", 8) if ids else _empty_uint64()
        return self


class UnknownMessage(Struct):
    """A message of a newer version of the schema: to be counted and ignored."""

    __slots__ = ("discriminant",)

    discriminant: int

    def __init__(self, discriminant: int) -> None:
        self.discriminant = discriminant


Member = Union[
    Hello,
    Welcome,
    Refusal,
    Heartbeat,
    HeartbeatEcho,
    DisconnectRequest,
    DisconnectResponse,
    ClientShutdown,
    ClientShutdownResponse,
    Task,
    TaskEcho,
    TaskResult,
    TaskCancel,
    TaskCancelConfirm,
    TaskLog,
    GraphTask,
    GraphTaskResult,
    BalanceRequest,
    BalanceResponse,
    ObjectInstruction,
    ObjectRequest,
    ObjectResponse,
    SchedulerStatus,
    ExplanationRequest,
    Explanation,
    InfoRequest,
    Info,
    TaskRuns,
    WorkerShutdown,
    WorkerShutdownResponse,
    TicketRequest,
    Ticket,
    Demand,
    Units,
    ReleaseRequest,
    Release,
]
Message = Union[Member, UnknownMessage]


# The members of the union, in the order of their discriminants.
MEMBERS: Tuple[Type[Member], ...] = (
    Hello,
    Welcome,
    Refusal,
    Heartbeat,
    HeartbeatEcho,
    DisconnectRequest,
    DisconnectResponse,
    ClientShutdown,
    ClientShutdownResponse,
    Task,
    TaskEcho,
    TaskResult,
    TaskCancel,
    TaskCancelConfirm,
    TaskLog,
    GraphTask,
    GraphTaskResult,
    BalanceRequest,
    BalanceResponse,
    ObjectInstruction,
    ObjectRequest,
    ObjectResponse,
    SchedulerStatus,
    ExplanationRequest,
    Explanation,
    InfoRequest,
    Info,
    TaskRuns,
    WorkerShutdown,
    WorkerShutdownResponse,
    TicketRequest,
    Ticket,
    Demand,
    Units,
    ReleaseRequest,
    Release,
)
