"""libsodium is found in each of its places, and seals what RFC 26 asks for."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, Dict, List

import pytest

from scaler_protocol.host import sodium
from scaler_protocol.host.sodium import MissingLibraryError, Sodium, load_sodium
from scaler_protocol.wire.curve import ForgedError


@pytest.fixture(params=["as it is", "without PyNaCl"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sodium:
    if request.param == "without PyNaCl":
        monkeypatch.setitem(sys.modules, "nacl._sodium", None)
        if not list(sodium._paths()):
            pytest.skip("neither pyzmq nor the system has libsodium here")
    load_sodium.cache_clear()
    try:
        return load_sodium()
    finally:
        load_sodium.cache_clear()


def test_two_ends_agree_on_a_box_that_no_other_key_opens(arithmetic: Sodium) -> None:
    one, other, third = (arithmetic.new_keys() for _ in range(3))
    nonce = arithmetic.random(24)
    sealed = arithmetic.box(other.public, one.secret).seal(nonce, b"head", b"text", b" in parts")
    assert sealed.startswith(b"head") and b"text" not in sealed and len(sealed) == 4 + 16 + 13
    opened = arithmetic.box(one.public, other.secret)
    assert opened.open(nonce, sealed, 4) == b"text in parts"
    assert arithmetic.box(other.public, one.secret).seal_short(nonce, b"head", b"text in parts") == sealed
    assert opened.open_split(nonce, bytes(sealed), 4, len(sealed)) == (b"t", b"ext in parts")
    memory = memoryview(bytearray(len(sealed)))
    arithmetic.box(other.public, one.secret).seal_into(memory, nonce, b"head", b"text", b" in parts")
    assert bytes(memory) == sealed
    for box, number in ((arithmetic.box(one.public, third.secret), nonce), (opened, bytes(24))):
        with pytest.raises(ForgedError):
            box.open(number, sealed, 4)
        with pytest.raises(ForgedError):
            box.open_in_place(number, memory[4:])
    in_place = opened.open_in_place(nonce, memory[4:])
    assert bytes(in_place) == b"text in parts" and in_place.obj is memory.obj


def test_what_is_too_short_was_not_sealed(arithmetic: Sodium) -> None:
    keys = arithmetic.new_keys()
    box = arithmetic.box(keys.public, keys.secret)
    for size in (0, 15, 16):
        with pytest.raises(ForgedError):
            box.open(bytes(24), bytes(size))
        with pytest.raises(ForgedError):
            box.open_in_place(bytes(24), memoryview(bytearray(size)))


def test_a_forged_text_in_a_view_leaves_nothing_that_garbage_collection_cannot_take(arithmetic: Sodium) -> None:
    # CPython below 3.12.7 crashes if that view is exported to anything that is kept with it (gh-77894).
    keys = arithmetic.new_keys()
    box = arithmetic.box(keys.public, keys.secret)
    errors = []
    for _ in range(10):
        try:
            box.open_in_place(bytes(24), memoryview(bytearray(1000)))
        except ForgedError as error:
            error.args = (error,)  # in a cycle
            errors.append(weakref.ref(error))
    gc.collect()
    assert len(errors) == 10 and not any(each() for each in errors)


def test_a_public_key_follows_from_the_secret_one(arithmetic: Sodium) -> None:
    keys = arithmetic.new_keys()
    assert arithmetic.public_key(keys.secret) == keys.public
    with pytest.raises(ValueError, match="keys have 32 bytes, got 31 and 32"):
        arithmetic.box(keys.public[:31], keys.secret)


def test_all_libraries_seal_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    results: List[bytes] = []
    for ffi, library, _ in sodium._candidates():
        keys = bytes(range(32))
        results.append(
            bytes(Sodium(ffi, library).box(Sodium(ffi, library).public_key(keys), keys).seal(bytes(24), b"", b"x"))
        )
    assert len(results) >= 1 and len(set(results)) == 1


def test_the_functions_are_described_as_cffi_describes_them(tmp_path: Path) -> None:
    cffi = pytest.importorskip("cffi")
    sodium_functions = pytest.importorskip("scaler_protocol.host.sodium_functions")
    described = cffi.FFI()
    described.set_source("libsodium", None)
    described.cdef(sodium_functions.DECLARATIONS)
    described.emit_python_code(str(tmp_path / "described.py"))
    arguments: Dict[str, object] = {}
    backend = SimpleNamespace(FFI=lambda name, **values: arguments.update(values))
    code = (tmp_path / "described.py").read_text().replace("import _cffi_backend", "")
    exec(code, {"_cffi_backend": backend})
    assert arguments == sodium_functions.ARGUMENTS


def test_no_declaration_is_parsed_at_a_start() -> None:
    program = (
        "import sys; sys.modules['nacl._sodium'] = None; from scaler_protocol.host import sodium;"
        " ffi, library, _ = next(sodium._candidates()); print(library.sodium_init(), 'cffi' in sys.modules)"
    )
    if not list(sodium._paths()):
        pytest.skip("neither pyzmq nor the system has libsodium here")
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE).stdout == b"0 False\n"


def test_the_library_of_pynacl_is_used_where_it_is_installed() -> None:
    pytest.importorskip("nacl")
    from nacl._sodium import lib

    assert next(sodium._candidates())[1] is lib


def test_without_the_library_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Callable[[], List[str]] = list
    monkeypatch.setattr(sodium, "_candidates", nothing)
    load_sodium.cache_clear()
    with pytest.raises(MissingLibraryError, match="pip install pynacl"):
        load_sodium()
    load_sodium.cache_clear()
