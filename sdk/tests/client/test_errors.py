"""Each thing that can go wrong is a named exception that says what to do, soon, and touches no other task."""

from __future__ import annotations

import http.server
import os
import pickle
import signal
import sys
import threading
import types
from typing import Any, Iterator

import pytest
import zmq
from played_names import no_such_name, play_names
from sdk_tasks import identity

from scaler import Client
from scaler.exceptions import (
    ArgumentTypeError,
    DeserializeObjectError,
    GraphCycleError,
    MissingObjects,
    NotASchedulerError,
    ProcessorDiedError,
    ProtocolVersionError,
    RemoteTraceback,
    ResultNotSerializableError,
    ScalerError,
    SchedulerUnreachableError,
    SerializeObjectError,
    TaskExceptionNotSerializableError,
)
from scaler_protocol import decode, encode
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 30.0

RETRIED_SECONDS = 2.0
"""How long a client retries: at least one attempt has ended by then, however busy the machine."""


@pytest.fixture(autouse=True)
def others_are_not_touched(any_client: Client) -> Iterator[None]:
    """Around every test: tasks that were submitted before, and after, have their results."""
    before = [any_client.submit(identity, number) for number in range(10)]
    yield
    after = [any_client.submit(identity, number) for number in range(10)]
    for futures in (before, after):
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(10))


# At the address -------------------------------------------------------------------------------------------------------


def test_nothing_listens_at_the_address() -> None:
    with pytest.raises(SchedulerUnreachableError, match="start a scheduler there") as raised:
        Client(address="tcp://127.0.0.1:1", connect_timeout_seconds=RETRIED_SECONDS)
    assert isinstance(raised.value, ConnectionError)


def test_an_error_of_a_new_client_is_not_buried_in_our_frames() -> None:
    with pytest.raises(SchedulerUnreachableError) as raised:
        Client(address="tcp://127.0.0.1:1", connect_timeout_seconds=RETRIED_SECONDS)
    assert [frame.name for frame in raised.traceback[1:]] == ["call", "__init__"]


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 64])
def test_the_host_name_is_not_known(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play_names(monkeypatch)["no-such-host.invalid"] = no_such_name
    address = f"tcp://{host}:2345"
    with pytest.raises(SchedulerUnreachableError, match=f"unknown host name in {address} .*check the"):
        Client(address=address, connect_timeout_seconds=RETRIED_SECONDS)


@pytest.mark.parametrize("address", ["127.0.0.1:2345", "http://127.0.0.1:80", "tcp://", "ipc://"])
def test_no_address_at_all(address: str) -> None:
    with pytest.raises(ValueError, match="is not a scheduler address"):
        Client(address=address)
    with pytest.raises(ValueError, match="SCALER_ADDRESS"):
        Client()


def test_a_web_server_is_no_scheduler() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(NotASchedulerError, match="is not a Scaler scheduler"):
            Client(address=f"tcp://127.0.0.1:{server.server_port}", connect_timeout_seconds=RETRIED_SECONDS)
    finally:
        server.shutdown()
        server.server_close()


class FakeScheduler:
    """Answers a Hello with whatever it is told."""

    def __init__(self, answer: bytes) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        port: int = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.hello: Any = None
        self._thread = threading.Thread(target=self._serve, args=(answer,), daemon=True)
        self._thread.start()

    def _serve(self, answer: bytes) -> None:
        peer, header = self._socket.recv_multipart()
        self.hello = decode(header)
        self._socket.send_multipart([peer, answer])

    def close(self) -> None:
        self._thread.join(TIMEOUT_SECONDS)
        self._socket.close(linger=0)


def test_something_else_that_speaks_zeromq_is_no_scheduler() -> None:
    fake = FakeScheduler(b"hello yourself")
    with pytest.raises(NotASchedulerError, match="incompatible protocol"):
        Client(address=fake.address)
    fake.close()


@pytest.mark.parametrize("session", [0, 1 << 24])
def test_a_session_that_no_scheduler_grants(session: int) -> None:
    fake = FakeScheduler(encode(m.Welcome(session=session)))
    with pytest.raises(NotASchedulerError, match=f"grants session {session}, but sessions must be from 1 to 16777215"):
        Client(address=fake.address)
    fake.close()


@pytest.mark.parametrize("major", [0, 2], ids=["too old", "too new"])
def test_the_protocols_do_not_fit(major: int) -> None:
    text = f"this scheduler speaks protocol {major}.0"
    fake = FakeScheduler(encode(m.Refusal(reason=m.RefusalReason.VERSION_MISMATCH, message=text, major=major)))
    with pytest.raises(ProtocolVersionError, match=text):
        Client(address=fake.address)
    assert (fake.hello.major, fake.hello.role) == (1, m.Role.CLIENT)
    fake.close()


# What does not pickle or unpickle -------------------------------------------------------------------------------------


class RaisesWhenPickled:
    def __reduce__(self) -> Any:
        raise RuntimeError("not for pickling")


def _refuse_to_load() -> Any:
    raise RuntimeError("not for loading")


class RaisesWhenLoaded:
    def __reduce__(self) -> Any:
        return (_refuse_to_load, ())


def test_a_function_that_does_not_pickle(any_client: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(SerializeObjectError, match="closes over"):
        any_client.submit(lambda: lock)
    with pytest.raises(TypeError, match="needs a function"):
        untyped: Any = any_client
        untyped.submit("no function")


def test_an_argument_that_does_not_pickle(any_client: Client) -> None:
    with pytest.raises(SerializeObjectError, match="argument of identity cannot be serialised: RuntimeError"):
        any_client.submit(identity, RaisesWhenPickled())
    with pytest.raises(SerializeObjectError):
        any_client.map(identity, [threading.Lock()])
    with pytest.raises(SerializeObjectError, match="object of type"):
        any_client.send_object(RaisesWhenPickled())


def test_an_argument_that_does_not_load_on_the_worker(any_client: Client) -> None:
    with pytest.raises(DeserializeObjectError, match="not for loading"):
        any_client.submit(identity, RaisesWhenLoaded()).result(TIMEOUT_SECONDS)


def test_a_function_whose_module_is_missing_on_the_worker(any_client: Client) -> None:
    module = types.ModuleType("only_on_the_client")
    exec("def function(): return 1", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        future = any_client.submit(module.function)
        with pytest.raises(DeserializeObjectError, match="only_on_the_client"):
            future.result(TIMEOUT_SECONDS)
    finally:
        del sys.modules[module.__name__]


def test_a_result_that_does_not_pickle(any_client: Client) -> None:
    with pytest.raises(ResultNotSerializableError, match="lock"):
        any_client.submit(threading.Lock).result(TIMEOUT_SECONDS)
    with pytest.raises(ResultNotSerializableError, match="not for pickling"):
        any_client.submit(RaisesWhenPickled).result(TIMEOUT_SECONDS)


def test_a_result_that_does_not_load_here(any_client: Client) -> None:
    future = any_client.submit(RaisesWhenLoaded)
    with pytest.raises(DeserializeObjectError, match="cannot be loaded by this client: RuntimeError: not for loading"):
        future.result(TIMEOUT_SECONDS)
    assert isinstance(future.exception(), DeserializeObjectError)


def test_an_exception_that_does_not_travel_is_described(any_client: Client) -> None:
    def function() -> None:
        UnpicklableError = type("UnpicklableError", (Exception,), {"lock": threading.Lock()})
        raise UnpicklableError("this error holds a lock")

    with pytest.raises(TaskExceptionNotSerializableError, match="UnpicklableError: this error holds a lock") as raised:
        any_client.submit(function).result(TIMEOUT_SECONDS)
    assert "in function" in str(raised.value.__cause__)


# What tasks do --------------------------------------------------------------------------------------------------------


def test_an_exception_arrives_with_the_remote_traceback(any_client: Client) -> None:
    def inner() -> None:
        raise KeyError("the key")

    def outer() -> None:
        inner()

    future = any_client.submit(outer)
    with pytest.raises(KeyError, match="the key") as raised:
        future.result(TIMEOUT_SECONDS)
    cause = raised.value.__cause__
    assert isinstance(cause, RemoteTraceback) and "in inner" in str(cause) and "in outer" in str(cause)
    assert future.exception() is raised.value


@pytest.mark.parametrize("function", [sys.exit, exec], ids=["sys.exit", "KeyboardInterrupt"])
def test_leaving_the_interpreter_is_the_tasks_failure(any_client: Client, function: Any) -> None:
    argument = 3 if function is sys.exit else "raise KeyboardInterrupt"
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        any_client.submit(function, argument).result(TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    ("end", "named"),
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"), (lambda: os._exit(3), "3")],
    ids=["killed", "exits"],
)
def test_a_processor_that_dies_fails_its_task_only(any_client: Client, end: Any, named: str) -> None:
    with pytest.raises(ProcessorDiedError, match=named):
        any_client.submit(end).result(TIMEOUT_SECONDS)


# Objects --------------------------------------------------------------------------------------------------------------


def test_a_stale_reference_is_refused_when_it_is_submitted(any_address: str) -> None:
    with Client(address=any_address) as client:
        reference = client.send_object([1, 2, 3], name="numbers")
        assert client.submit(sum, reference).result(TIMEOUT_SECONDS) == 6
        client.clear()
        with pytest.raises(MissingObjects, match="'numbers' does not exist any more"):
            client.submit(sum, reference)


def test_more_references_than_a_task_can_have_are_refused_and_harm_no_other_task(any_client: Client) -> None:
    before = any_client.submit(len, [any_client.send_object(b"1")])
    reference = any_client.send_object(b"2")
    with pytest.raises(ValueError, match="refer to 65535 objects"):
        any_client.submit(len, [reference._replace() for _ in range(65535)])
    after = any_client.submit(len, [reference])
    assert (before.result(TIMEOUT_SECONDS), after.result(TIMEOUT_SECONDS)) == (1, 1)


def test_a_reference_to_another_clients_object_that_is_gone(any_client: Client, any_address: str) -> None:
    with Client(address=any_address) as other:
        reference = other.send_object([1, 2, 3])
        assert other.submit(sum, reference).result(TIMEOUT_SECONDS) == 6
    future = any_client.submit(sum, reference)
    with pytest.raises(MissingObjects, match="does not exist"):
        future.result(TIMEOUT_SECONDS)


def test_all_errors_have_one_base_and_pickle() -> None:
    import scaler.exceptions

    for name in scaler.exceptions.__all__:
        kind = getattr(scaler.exceptions, name)
        if kind is not RemoteTraceback:
            assert issubclass(kind, ScalerError)
        assert str(pickle.loads(pickle.dumps(kind("what happened")))) == str(kind("what happened"))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda client: client.explain(5), "future must be a ScalerFuture, got int"),
        (
            lambda client: type(client)(client._address, serializer=5),
            r"serializer must have a method serialize\(\)",
        ),
        (lambda client: type(client)(5), "address must be a str .*, got int"),
        (lambda client: client.info("many"), "maximum_workers must be a whole number, got str"),
        (lambda client: client.get({"a": 1}, [[1]]), r"\[1\] cannot be a key: TypeError: unhashable"),
    ],
)
def test_an_argument_of_another_type_is_told(any_client: Client, call: Any, text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=text):
        call(any_client)


def test_a_cycle_is_told_in_words_and_by_its_keys(any_client: Client) -> None:
    with pytest.raises(GraphCycleError) as raised:
        any_client.get({"a": (abs, "b"), "b": (abs, "a")}, ["a"])
    assert str(raised.value).startswith("tasks of the graph wait for each other: 'a' -> 'b' -> 'a' (")
    assert raised.value.args[1] == ["a", "b", "a"]
