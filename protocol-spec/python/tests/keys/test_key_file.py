"""Key files: written, read, refused, and silent about their secrets."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.allow_list import Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_file import (
    ROLES,
    KeyFile,
    key_file_text,
    parse_key_file,
    read_key_file,
    write_key_file,
)
from scaler_protocol.keys.key_text import encode_key
from scaler_protocol.wire.curve import KeyPair

pytestmark = pytest.mark.exhaustive_on_pypy  # files are the same there

NEW_YEAR_2027 = 1_798_761_600.0
SECRETS = [bytes([number]) * 32 for number in (1, 2, 3)]  # known, so that a failing example can be repeated
KEYS, SERVER, OLD_SERVER = (KeyPair(load_sodium().public_key(secret), secret) for secret in SECRETS)
ALICE = KeyFile("worker", "team", "alice-laptop", KEYS, (SERVER.public, OLD_SERVER.public), NEW_YEAR_2027)
SECRET_TEXT = encode_key(KEYS.secret)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "alice.key")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("expires", [None, NEW_YEAR_2027])
def test_what_is_written_is_read(path: str, role: str, expires: Any) -> None:
    key_file = ALICE._replace(role=role, expires=expires)
    write_key_file(path, key_file)

    assert read_key_file(path) == key_file
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_text_is_toml_that_says_what_it_is() -> None:
    text = key_file_text(ALICE)

    assert text.startswith("# The key of a peer of Scaler. It is a secret: ")
    if sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads(text) == {
            "role": "worker",
            "tenant": "team",
            "name": "alice-laptop",
            "expires": "2027-01-01T00:00:00Z",
            "public_key": encode_key(KEYS.public),
            "secret_key": SECRET_TEXT,
            "server_keys": [encode_key(SERVER.public), encode_key(OLD_SERVER.public)],
        }


def test_tenant_and_expiry_may_be_left_out() -> None:
    lines = [line for line in key_file_text(ALICE).splitlines() if not line.startswith(("tenant", "expires"))]

    assert parse_key_file("\n".join(lines), "f") == ALICE._replace(tenant="default", expires=None)


def test_a_key_file_knows_its_line_in_the_scheduler_s_list() -> None:
    assert ALICE.grant == Grant("worker", "team", "alice-laptop", NEW_YEAR_2027)


def entries() -> Dict[str, str]:
    return dict(line.split(" = ") for line in key_file_text(ALICE).splitlines() if not line.startswith("#"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"role": '"root"'}, "the role must be one of client, worker"),
        ({"role": '["worker"]'}, "role must be one text"),
        ({"name": '"../alice"'}, "the name must have"),
        ({"tenant": '""'}, "the tenant must have"),
        ({"expires": '"never"'}, "a time must be like 2027"),
        ({"public_key": '"short"'}, "public_key: a key has 40 characters"),
        ({"public_key": f'"{encode_key(SERVER.public)}"'}, "do not belong together"),
        ({"secret_key": f'"{SECRET_TEXT[:-1]}~"'}, "secret_key: a key is malformed"),
        ({"secret_key": f'["{SECRET_TEXT}"]'}, "secret_key must be one text"),
        ({"server_keys": f'"{encode_key(SERVER.public)}"'}, "server_keys must be a list"),
        ({"server_keys": "[]"}, "server_keys must have 1 to 16 keys, got 0"),
        ({"server_keys": '["' + '", "'.join([encode_key(bytes(32))] * 2) + '"]'}, "server_keys has a key twice"),
        ({"sever_keys": '"x"'}, "it has an unknown name; the names are role, name"),
        ({"role": ""}, "role is missing"),
        ({"public_key": "", "secret_key": ""}, "public_key, secret_key is missing"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name_and_without_its_secret(
    path: str, changes: Dict[str, str], problem: str
) -> None:
    text = "".join(f"{name} = {value}\n" for name, value in {**entries(), **changes}.items() if value)
    Path(path).touch(0o600)
    Path(path).write_text(text)

    with pytest.raises(KeyFileError, match=f"^cannot use {path}: .*{problem}") as caught:
        read_key_file(path)
    everything = "".join(traceback.format_exception(KeyFileError, caught.value, caught.value.__traceback__))
    assert SECRET_TEXT[:-1] not in everything


def test_a_file_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(KeyFileError, match=r"^alice\.key, line 1: a line must be"):
        parse_key_file(f"secret_key = {SECRET_TEXT}", "alice.key")


@given(st.text() | st.lists(st.sampled_from([*key_file_text(ALICE).splitlines(), "role = []", ""])).map("\n".join))
def test_any_text_is_a_key_file_or_an_error_of_one_kind(text: str) -> None:
    try:
        key_file = parse_key_file(text, "f")
    except KeyFileError:
        return
    assert parse_key_file(key_file_text(key_file), "f") == key_file


def test_a_missing_file_is_an_error_that_says_how_to_make_one(path: str) -> None:
    with pytest.raises(KeyFileError, match=f"there is no key file {path}; .* scaler keys new --role"):
        read_key_file(path)


def test_a_file_that_others_can_read_is_refused(path: str) -> None:
    write_key_file(path, ALICE)
    os.chmod(path, 0o644)

    with pytest.raises(KeyFileError, match=f"chmod 600 {path}"):
        read_key_file(path)


def test_a_file_is_replaced_only_if_asked_to(path: str) -> None:
    write_key_file(path, ALICE)
    bob = ALICE._replace(name="bob")

    with pytest.raises(KeyFileError, match=f"{path} exists already"):
        write_key_file(path, bob)
    assert read_key_file(path) == ALICE
    write_key_file(path, bob, is_replaced=True)
    assert read_key_file(path) == bob


@pytest.mark.parametrize(
    "invalid",
    [
        ALICE._replace(role="root"),
        ALICE._replace(name='"'),
        ALICE._replace(server_keys=()),
        ALICE._replace(keys=KeyPair(SERVER.public, KEYS.secret)),
        ALICE._replace(expires=float("nan")),
    ],
)
def test_what_could_not_be_read_is_not_written(path: str, invalid: KeyFile) -> None:
    with pytest.raises(KeyFileError):
        write_key_file(path, invalid)
    assert not os.path.exists(path)


def test_secrets_are_in_no_text_that_a_program_makes_of_its_values(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("scaler")
    with caplog.at_level(logging.DEBUG, "scaler"):
        log.warning("%s %r %s %s", ALICE, ALICE, ALICE.keys, {"key": [ALICE]})
        try:
            raise RuntimeError(ALICE, KEYS)
        except RuntimeError:
            log.exception("%s", f"{ALICE} {KEYS}")
    assert f"KeyFile(worker 'alice-laptop' of 'team', {encode_key(KEYS.public)})" in caplog.text
    for secret in (SECRET_TEXT, repr(KEYS.secret), str(KEYS.secret), KEYS.secret.hex()):
        assert secret not in caplog.text
        assert secret not in repr(ALICE) + str(ALICE) + f"{ALICE}" + repr(KEYS) + str(KEYS) + f"{KEYS}"


@pytest.mark.parametrize("weak", [bytes(32), (1).to_bytes(32, "little")], ids=["zero", "one"])
def test_a_server_key_that_is_the_same_to_all_is_refused(path: str, weak: bytes) -> None:
    text = key_file_text(ALICE).replace(encode_key(SERVER.public), encode_key(weak))
    with pytest.raises(KeyFileError, match="not that of a server"):
        parse_key_file(text, path)
