"""What goes into the single file is found on this machine and in packages for another alike.

Rule: nothing is fetched here; test_other_machine.py does that.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import pytest
from machines import NotRunnableError, _command_for, command_for, machine_of
from systems import BuildError, DebianSystem, HostSystem, MissingToolError, compiler_package, linked_with, run

PREFIX = f"{platform.machine()}-linux-gnu"
VERSION = "1.2+dfsg-3"
LIBRARY = "lib/aarch64-linux-gnu/libsome.so.1"

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb here")


class PackedHere(DebianSystem):
    """With packages that are made here, instead of those that apt fetches."""

    def download(self) -> None:
        archives = self._folder / "cache/archives"
        archives.mkdir(parents=True)
        for name, source, same in (("pypy3", "pypy3", False), ("libsome1", "some", True)):
            content = self._folder / name
            (content / "DEBIAN").mkdir(parents=True)
            control = f"Package: {name}\nSource: {source}\nVersion: {VERSION}\nArchitecture: arm64\nMaintainer: me\n"
            (content / "DEBIAN/control").write_text(
                control + ("Multi-Arch: same\n" if same else "") + "Description: made here\n"
            )
            terms = content / f"usr/share/doc/{name}/copyright"
            terms.parent.mkdir(parents=True)
            terms.write_text(f"the terms of {name}")
            if same:
                (content / LIBRARY).parent.mkdir(parents=True)
                (content / LIBRARY).touch()
            run("dpkg-deb", "--build", str(content), str(archives))


@pytest.mark.parametrize("name", ["sh", "python3", "pypy3", "git"])
def test_libraries_are_those_that_the_loader_finds_though_nothing_runs(name: str) -> None:
    program = shutil.which(name, path="/usr/bin:/bin")
    if program is None or shutil.which("patchelf") is None or not Path("/usr/lib", PREFIX).exists():
        pytest.skip(f"no {name}, no patchelf, or no Debian here")
    found = linked_with(Path(program), [Path("/lib", PREFIX), Path("/usr/lib", PREFIX)], {})
    assert {path.resolve() for path in found} == {path.resolve() for path in HostSystem().libraries_of(Path(program))}
    assert len(found) == len(set(found))


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    if shutil.which("patchelf") is None:
        pytest.skip("there is no patchelf here")
    with pytest.raises(BuildError, match=rf"there is no libc\.so\.6 in {tmp_path}"):
        linked_with(Path("/bin/sh"), [tmp_path], {})


@needs_dpkg
def test_a_file_of_another_machine_is_known_by_its_package(tmp_path: Path) -> None:
    system = PackedHere("aarch64", tmp_path / "packages")
    system.fetch(f"3.9 ({VERSION}, today)")
    package = system.package_of(system.root / LIBRARY)
    assert package is not None
    assert (package.name, package.source, package.source_version) == ("libsome1", "some", VERSION)
    assert package.terms.read_text() == "the terms of libsome1"
    assert system.package_of(system.root / "usr/bin/unknown") is None


@needs_dpkg
def test_packages_are_fetched_again_only_for_another_pypy(tmp_path: Path) -> None:
    system = PackedHere("aarch64", tmp_path / "packages")
    system.fetch(f"3.9 ({VERSION}, today)")
    mark = system.root / "mark"
    mark.touch()
    PackedHere("aarch64", tmp_path / "packages").fetch(f"3.9 ({VERSION}, today)")
    assert mark.exists()
    PackedHere("aarch64", tmp_path / "packages").fetch(f"3.9 ({VERSION}, tomorrow)")
    assert not mark.exists()


@needs_dpkg
@pytest.mark.parametrize("version", ["8", f"{VERSION}+deb12u1"])
def test_a_pypy_of_another_version_is_refused_each_time(version: str, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(MissingToolError, match=r"PyPy here is 3\.9 \(.*, and Debian's for aarch64 is 1\.2\+dfsg-3"):
            PackedHere("aarch64", tmp_path / "packages").fetch(f"3.9 ({version}, today)")


def test_files_of_a_pypy_are_where_the_other_machine_has_them(tmp_path: Path) -> None:
    system = DebianSystem("aarch64", tmp_path)
    assert system.located(f"/usr/lib/{PREFIX}/pypy") == tmp_path / "root/usr/lib/aarch64-linux-gnu/pypy"
    assert HostSystem().located("/usr/bin/pypy3") == Path("/usr/bin/pypy3")


def test_a_missing_compiler_is_named_with_its_package() -> None:
    assert compiler_package("x86_64-linux-gnu") == "gcc-x86-64-linux-gnu"
    with pytest.raises(
        MissingToolError, match="no sparc64-linux-gnu-gcc; on Debian: apt-get install gcc-sparc64-linux-gnu"
    ):
        run("sparc64-linux-gnu-gcc")


def test_a_programs_machine_is_that_of_its_header(tmp_path: Path) -> None:
    assert machine_of(Path(sys.executable).resolve()) == platform.machine()
    file = tmp_path / "program"
    for start, machine in (
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\0", "aarch64"),
        (b"\x7fELF\x01\x01" + bytes(12) + b"\xb7\0", None),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x08\0", None),
        (b"#!/bin/sh\n", None),
        (b"", None),
    ):
        file.write_bytes(start)
        assert machine_of(file) == machine


def test_a_program_for_this_machine_runs_as_it_is() -> None:
    assert command_for(platform.machine()) == command_for(None) == []


def test_without_qemu_a_program_for_another_machine_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    monkeypatch.setenv("PATH", str(tmp_path))
    _command_for.cache_clear()
    with pytest.raises(NotRunnableError, match="apt-get install qemu-user-static"):
        command_for(other)
