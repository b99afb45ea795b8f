"""The system whose files go into the single file: this machine's own, or Debian's packages for another machine.

    HostSystem      /                        what is installed here; a PyPy of Debian's, or a portable one

    DebianSystem    build/debian-arm64       apt-get ──▶ packages ──▶ root/    as they would be installed there
                                             (checks signatures, hashes)       with dpkg's records of them

The builder asks both the same questions: where a library is, what a file is linked with, which package it is of, and
with which commands the launcher is compiled and symbols are stripped.

Rules:
- A DebianSystem uses this machine's sources of packages, and so its release of Debian, but neither reads nor changes
  what is installed here: apt has a configuration, lists and a cache of its own.
- Nothing of it runs: its PyPy has to be of the same version as the one here, whose bytecode it gets.
- It is fetched once, and again when the list of its packages or the PyPy here has changed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The machines, as the kernel calls them, and what they are to Debian."""

# With all that they depend on: what runs. Then those that only the launcher is linked with, and nothing else of theirs.
RUNNING_PACKAGES = ["pypy3", "libstdc++6"]
LINKED_PACKAGES = ["musl-dev", "libzstd-dev"]

APT_CONFIGURATION = """\
#clear APT::Architectures;
#clear APT::Update;
#clear DPkg;
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
"""


class BuildError(Exception):
    """What went wrong."""


class MissingToolError(BuildError):
    """What is missing, and how to get it; the builder's exit code says so too."""


class Package(NamedTuple):
    """What a file comes from, as a licence names it."""

    name: str
    source: str
    source_version: str
    terms: Path


def run(*command: str, **options: Any) -> str:
    """Run a command to its end; its output.

    Raises BuildError, MissingToolError.
    """
    try:
        finished = subprocess.run(command, capture_output=True, text=True, **options)
    except FileNotFoundError:
        package = {"strip": "binutils", "ldd": "libc-bin"}.get(command[0], command[0])
        compiler = re.fullmatch(r"(\w+-linux-gnu)-(gcc|strip)", command[0])
        if compiler:
            package = compiler_package(compiler[1])
        raise MissingToolError(f"there is no {command[0]}; on Debian: apt-get install {package}") from None
    if finished.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{finished.stdout}{finished.stderr}")
    return str(finished.stdout)


def compiler_package(prefix: str) -> str:
    """The package of Debian with the compiler for a machine, by the prefix of its tools."""
    return f"gcc-{prefix}".replace("_", "-")


class HostSystem:
    """What is installed on this machine.

    Attributes:
        machine: as the kernel calls it; root: the folder that is `/` to its files.
        strip: the command that removes symbols.
    """

    def __init__(self) -> None:
        self.machine = platform.machine()
        self.root = Path("/")
        self.strip = "strip"

    def located(self, path: str) -> Path:
        """Where a file of this machine's PyPy is in the system."""
        return Path(path)

    def loader_of(self, program: Path) -> Path:
        """The loader that a program asks for."""
        return Path(run("patchelf", "--print-interpreter", str(program)).strip())

    def libraries_of(self, program: Path) -> List[Path]:
        """The shared libraries that an ELF file is linked with, those that they need included, but for the loader."""
        return [Path(path) for path in re.findall(r"\S+ => (\S+) \(0x", run("ldd", str(program)))]

    def package_of(self, file: Path) -> Optional[Package]:
        """The package of Debian that a file is of; None if there is none."""
        records = f"--admindir={self.root / 'var/lib/dpkg'}"
        # By its folder too: a compiler for another machine has a library of the same name.
        place = file.relative_to(self.root).as_posix()
        place = place[len("usr/") :] if place.startswith("usr/") else place
        try:
            name = run("dpkg-query", records, "-S", f"*/{place}").split(":")[0]
            question = "${source:Package} ${source:Version}\n"
            source, version = run("dpkg-query", records, "-W", "-f", question, name).split()[:2]
        except BuildError:
            return None
        return Package(name, source, version, self.root / "usr/share/doc" / name / "copyright")

    def compile_static(self, source: Path, flags: List[str], output: Path, work: Path) -> None:
        """Compile a program of one file with musl and libzstd, linked statically.

        Parameters:
            work: a folder for what is in between.
        Raises BuildError, MissingToolError.
        """
        headers = work / "include"  # of zstd alone: the others are musl's
        headers.mkdir(exist_ok=True)
        try:
            shutil.copyfile(self.root / "usr/include/zstd.h", headers / "zstd.h")
            command = self._musl_compiler(work)
            # By its name alone: no folder gets into the program.
            run(
                *(*command, *flags, "-static", "-isystem", str(headers), source.name, self._zstd()),
                *("-o", str(output)),
                cwd=source.parent,
            )
        except (BuildError, OSError) as error:
            message = f"It needs {self._compiler_needs()}"
            raise MissingToolError(f"{error}\n{message}") from None

    def _musl_compiler(self, work: Path) -> List[str]:
        return ["musl-gcc"]

    def _zstd(self) -> str:
        return run("gcc", "-print-file-name=libzstd.a").strip()

    def _compiler_needs(self) -> str:
        return "gcc, musl and libzstd.a; on Debian: apt-get install gcc musl-tools libzstd-dev"


class DebianSystem(HostSystem):
    """Debian's packages for a machine, unpacked to a folder and not installed.

    Parameters:
        machine: one of DEBIAN_ARCHITECTURES.
        folder: where it is kept.
    """

    def __init__(self, machine: str, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._prefix = f"{machine}-linux-gnu"
        self._host_prefix = f"{self.machine}-linux-gnu"
        self.machine = machine
        self.architecture = DEBIAN_ARCHITECTURES[machine]
        self.root = folder / "root"
        self.strip = f"{self._prefix}-strip"

    def fetch(self, version: str) -> None:
        """Download and unpack the packages if that is not done.

        Parameters:
            version: the version of the PyPy here, which this system's has to be of.
        Raises BuildError, MissingToolError.
        """
        wanted = f"{self.architecture} {RUNNING_PACKAGES} {LINKED_PACKAGES} {version}"
        stamp = self._folder / "fetched"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"fetching Debian's packages for {self.machine}: {self._folder}")
        shutil.rmtree(self._folder, ignore_errors=True)
        self.download()
        self.unpack()
        found = run("dpkg-query", f"--admindir={self.root / 'var/lib/dpkg'}", "-W", "-f", "${Version}", "pypy3")
        if f"({found}," not in version:
            raise MissingToolError(
                f"PyPy here is {version}, and Debian's for {self.machine} is {found}, whose bytecode may be another.\n"
                "Install the same one: apt-get install pypy3"
            )
        stamp.write_text(wanted)

    def download(self) -> None:
        """Put the packages into apt's cache in the folder."""
        self.apt("apt-get", "--quiet", "update")
        for_running = ["--quiet", "--yes", "--no-install-recommends", "--download-only", "install", *RUNNING_PACKAGES]
        self.apt("apt-get", *for_running)
        self.apt("apt-get", "--quiet", "download", *LINKED_PACKAGES)

    def apt(self, *command: str) -> str:
        """Run a command of apt with the folder's configuration, lists and cache, which it works in; its output.

        Raises BuildError, MissingToolError.
        """
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "state/status").touch()
        configuration = self._folder / "apt.conf"
        configuration.write_text(APT_CONFIGURATION.format(architecture=self.architecture, folder=self._folder))
        environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C.UTF-8"}
        try:
            return run(*command, cwd=self._folder / "cache/archives", env=environment)
        except MissingToolError:
            raise MissingToolError(f"a file for {self.machine} takes Debian's packages: build it on Debian") from None

    def unpack(self) -> None:
        """Unpack the packages in the cache, and record them for dpkg-query."""
        records = self.root / "var/lib/dpkg"
        (records / "info").mkdir(parents=True)
        (records / "info/format").write_text("1\n")
        status = []
        for archive in sorted((self._folder / "cache/archives").glob("*.deb")):
            run("dpkg-deb", "--extract", str(archive), str(self.root))
            control = run("dpkg-deb", "--field", str(archive))
            status.append(f"{control.rstrip()}\nStatus: install ok installed\n")
            fields = dict(re.findall(r"^(Package|Multi-Arch): (\S+)$", control, re.MULTILINE))
            of_this_machine = f":{self.architecture}" if fields.get("Multi-Arch") == "same" else ""
            names = "".join(f"{name}\n" for name in names_in(archive))
            (records / f"info/{fields['Package']}{of_this_machine}.list").write_text(names)
        (records / "status").write_text("\n".join(status))

    def located(self, path: str) -> Path:
        return self.root / path.replace(self._host_prefix, self._prefix).lstrip("/")

    def loader_of(self, program: Path) -> Path:
        return self._library(super().loader_of(program).name)

    def libraries_of(self, program: Path) -> List[Path]:
        return linked_with(program, self._folders(), {})

    def _folders(self) -> List[Path]:
        return [self.root / folder / self._prefix for folder in ("lib", "usr/lib")]

    def _library(self, name: str) -> Path:
        return found_in(name, self._folders())

    def _musl_compiler(self, work: Path) -> List[str]:
        """The cross compiler, told where musl is as Debian's wrapper for that machine tells it."""
        told = (self.root / f"usr/lib/{self.machine}-linux-musl/musl-gcc.specs").read_text()
        specs = work / "musl-gcc.specs"
        specs.write_text(told.replace("/usr/", f"{self.root}/usr/"))
        return [f"{self._prefix}-gcc", "-specs", str(specs)]

    def _zstd(self) -> str:
        return str(self._library("libzstd.a"))

    def _compiler_needs(self) -> str:
        return f"a compiler for {self.machine}; on Debian: apt-get install {compiler_package(self._prefix)}"


def names_in(archive: Path) -> Iterator[str]:
    """The paths of files of a package of Debian, as dpkg records them."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as members:
            for member in members:
                yield "/" + member.name[2:] if member.name != "." else "/."
        if process.wait():
            raise BuildError(f"{archive} is damaged; remove its folder")


def found_in(name: str, folders: List[Path]) -> Path:
    """A library's path, in the first folder that has it."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise BuildError(f"there is no {name} in {' and '.join(map(str, folders))}")


def linked_with(program: Path, folders: List[Path], known: Dict[str, Path]) -> List[Path]:
    """What `ldd` says, without running anything: all libraries that an ELF file needs, but for the loader.

    Parameters:
        folders: the system's; a file's own RPATH goes before, where it is relative to the file.
        known: libraries by name that were found before, and are not looked for again; new ones are added.
    """
    new: List[Path] = []
    own = run("patchelf", "--print-rpath", str(program)).strip().split(":")
    beside = [Path(place.replace("$ORIGIN", str(program.parent))) for place in own if place.startswith("$ORIGIN")]
    for name in run("patchelf", "--print-needed", str(program)).split():
        if name not in known and not name.startswith("ld-linux"):
            known[name] = found_in(name, [*beside, *folders])
            new.append(known[name])
    for library in new[:]:
        new += linked_with(library, folders, known)
    return new
