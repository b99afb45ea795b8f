"""A client and workers of different Python versions: code that travels by value is refused, all else works."""

from __future__ import annotations

import sys

import pytest
from sdk_tasks import identity

from scaler import Client
from scaler.exceptions import DeserializeObjectError
from scaler.values import pickling

TIMEOUT_SECONDS = 30.0

OTHER = "CPython 3.0"


@pytest.fixture
def of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process says of its code that another Python made it."""
    monkeypatch.setattr(pickling, "THIS_PYTHON", OTHER)


@pytest.mark.usefixtures("of_another_version")
def test_a_function_by_value_is_refused_with_both_versions(any_client: Client) -> None:
    with pytest.raises(DeserializeObjectError) as raised:
        any_client.submit(lambda value: value + 1, 1).result(TIMEOUT_SECONDS)
    worker = "{}.{}".format(*sys.version_info[:2])
    assert f"its code was made by {OTHER}, and this is CPython {worker}: run the client and the workers" in str(
        raised.value
    )


@pytest.mark.usefixtures("of_another_version")
def test_so_is_one_among_the_arguments(any_client: Client) -> None:
    future = any_client.submit(identity, lambda: None)
    with pytest.raises(DeserializeObjectError, match=f"its code was made by {OTHER}"):
        future.result(TIMEOUT_SECONDS)


@pytest.mark.usefixtures("of_another_version")
def test_a_function_of_a_module_works(any_client: Client) -> None:
    assert any_client.submit(identity, {"all": [1, 2.0, "three"]}).result(TIMEOUT_SECONDS) == {"all": [1, 2.0, "three"]}


def test_a_function_by_value_works_in_the_same_version(any_client: Client) -> None:
    assert any_client.submit(lambda value: value + 1, 1).result(TIMEOUT_SECONDS) == 2
