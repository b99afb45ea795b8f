"""A library whose relocations are packed is the same to programs, and smaller; what cannot be packed is named."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pypy"))

from packed_relocations import NotPackedError, is_known_to, packed, relr

POINTERS = 20_000
ODD_PLACE = 17
SOURCE = f"""
#include <string.h>
static char values[{POINTERS}];
char *pointers[{POINTERS}] = {{{", ".join(f"values + {index}" for index in range(POINTERS))}}};
struct __attribute__((packed)) {{ char first; char *pointer; }} odd = {{1, values + {ODD_PLACE}}};
size_t (*call)(const char *) = strlen;
long distance(int index) {{ return pointers[index] - values; }}
long odd_distance(void) {{ return odd.pointer - values; }}
size_t length(const char *text) {{ return strlen(text) + call(text); }}
"""
GNU_LOADER_WITH_RELR = (2, 36)


# The two layouts: code in a segment of its own, as Debian links for x86-64, and behind the relocations, as for aarch64.
LAYOUTS = ["separate-code", "noseparate-code"]


@pytest.fixture(scope="module", params=LAYOUTS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the builder of the single file leaves PyPy's."""
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(map(int, version.split("."))) < GNU_LOADER_WITH_RELR:
        pytest.skip(f"the loader here does not know packed relocations: {name} {version}")
    if shutil.which("gcc") is None or shutil.which("patchelf") is None:
        pytest.skip("no gcc or no patchelf here")
    folder = tmp_path_factory.mktemp("library")
    (folder / "library.c").write_text(SOURCE, encoding="ascii")
    build(folder, "-Wl,--build-id", f"-Wl,-z,{request.param}")
    patch = ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/" + "x" * 64, "library.so"]
    subprocess.run(patch, cwd=folder, check=True)
    return folder / "library.so"


def build(folder: Path, *options: str) -> None:
    command = ["gcc", "-shared", "-fPIC", "-O1", *options, "-o", "library.so", "library.c"]
    subprocess.run(command, cwd=folder, check=True)


def test_pointers_and_calls_are_as_before(library: Path) -> None:
    smaller = library.with_name("packed.so")
    smaller.write_bytes(packed(library.read_bytes()))
    loaded = ctypes.CDLL(str(smaller))
    loaded.distance.restype = loaded.odd_distance.restype = ctypes.c_long
    assert [loaded.distance(index) for index in range(POINTERS)] == list(range(POINTERS))
    assert loaded.odd_distance() == ODD_PLACE  # at an odd address, which cannot be packed
    assert loaded.length(b"three") == 10
    assert os.path.getsize(library) - os.path.getsize(smaller) > POINTERS * 23


def test_a_c_library_whose_loader_knows_them_is_told_from_an_older_one(library: Path) -> None:
    [path] = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line][:1]
    c_library = Path(path).read_bytes()
    assert is_known_to(c_library)
    assert not is_known_to(c_library.replace(b"GLIBC_ABI_DT_RELR", b"GLIBC_2.35\0\0\0\0\0\0\0"))


def test_it_is_the_same_each_time(library: Path) -> None:
    assert packed(library.read_bytes()) == packed(library.read_bytes())


def test_what_is_packed_already_stays(library: Path) -> None:
    once = packed(library.read_bytes())
    assert packed(once) == once


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is no ELF file of 64 bits"),
        (b"\x7fELF\x01\x01" + bytes(100), "it is no ELF file of 64 bits"),
        (b"\x7fELF\x02\x01", "it is cut off"),
        (b"\x7fELF\x02\x01" + bytes(100), "it is no shared library for a processor that is known here"),
    ],
)
def test_another_file_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(NotPackedError, match=reason):
        packed(content)


def test_where_there_is_no_segment_to_spare_the_reason_is_named(library: Path, tmp_path: Path) -> None:
    shutil.copy(library.with_name("library.c"), tmp_path)
    build(tmp_path, "-Wl,--build-id=none", "-Wl,-z,noseparate-code")
    with pytest.raises(NotPackedError, match="code follows its relocations, and it has no segment to spare"):
        packed((tmp_path / "library.so").read_bytes())


def test_no_cut_off_library_is_taken_for_a_whole_one(library: Path) -> None:
    content = library.read_bytes()
    whole = packed(content)
    refused = 0
    for end in range(0, len(content), len(content) // 97):
        try:
            assert packed(content[:end]) == whole  # sections may be missing, which are left out
        except NotPackedError:
            refused += 1
    assert refused > 90


@given(st.lists(st.integers(0, 1 << 12), unique=True).map(sorted))
def test_the_table_names_each_place_once(words: List[int]) -> None:
    places = [8 * word for word in words]
    assert read_relr(relr(places)) == places


def read_relr(table: bytes) -> List[int]:
    """As a loader reads it."""
    places: List[int] = []
    where = 0
    for (word,) in struct.iter_unpack("<Q", table):
        if word & 1:
            places += [where + 8 * bit for bit in range(63) if word >> (bit + 1) & 1]
            where += 63 * 8
        else:
            places.append(word)
            where = word + 8
    return places
