"""Builds dist/pypy/scaler_scheduler: PyPy, the C library, pyzmq and the scheduler in one file that unpacks itself.

    python packaging/pypy/build.py --pypy /usr/bin/pypy3 [--work build/pypy] [--output dist/pypy/scaler_scheduler]
    python packaging/pypy/build.py --machine aarch64 [...]      for another machine, from Debian's packages

Rules:
- The same sources, PyPy and tools give the same bytes: entries are sorted and have no owner, no time and a fixed mode;
  bytecode is bound to no time and no place; nothing of the builder's paths, time or environment gets in.
- What goes in is described here once; systems.py finds it on this machine or in Debian's packages for another.
- Nothing is downloaded but what requirements.txt names by hash, and for another machine what apt has verified.
- What was built from the same input is not built again. What is slow to compress, PyPy itself, is kept compressed under
  its hash in the work folder.
- A tool that is missing is named, with how to get it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import sys
import zipfile
import zlib
from importlib.metadata import distribution
from pathlib import Path
from typing import Dict, List, Set, Tuple

from packed_relocations import NotPackedError, is_known_to, packed
from scaler_module_archive import MARSHAL_VERSION, NAME, archived
from systems import DEBIAN_ARCHITECTURES, BuildError, DebianSystem, HostSystem, MissingToolError, run

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
PACKAGES = [TREE / "protocol-spec/python/src/scaler_protocol", TREE / "appliance/src/scaler_appliance"]
SOURCES = [*PACKAGES, HERE]
FIRST_PROGRAM = "scaler_scheduler"
# Programs whose libraries import what is left out, though they do not need it: see stand_ins. The others find out that
# it is not there, and start faster for it.
WITH_STAND_INS = {"scaler_ui"}

# Of PyPy's standard library: what no program of ours can use. The rest does without what it would use of it.
LEFT_OUT = {
    # for people at a terminal, for development, for other systems
    *(
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "pydoc.py",
        "tkinter",
        "turtle.py",
        "turtledemo",
        "antigravity.py",
        "this.py",
    ),
    *("distutils", "ensurepip", "venv", "zipapp.py", "msilib", "hpy", "greenlet.py", "pypy_tools", "pyrepl", "pdb.py"),
    *("test", "tests", "doctest.py", "_testcapi.py", "_testmultiphase.py", "_ctypes_test.py"),
    *("_pypy_testcapi.py", "_pypy_irc_topic.py", "_pypy_interact.py", "dist-packages", "site-packages", "__pycache__"),
    # that need further libraries: OpenSSL, SQLite, ncurses (blessed brings its own description of terminals), gdbm, xz
    *("ssl.py", "_ssl", "_cffi_ssl", "sqlite3", "_sqlite3.py", "curses", "_curses.py", "_curses_panel.py"),
    *("_gdbm.py", "_lzma.py"),
    # other protocols and formats; what the handlers of logging use is there
    *("xml", "xmlrpc", "cgi.py", "cgitb.py", "ftplib.py", "imaplib.py", "mailbox.py", "nntplib.py"),
    *("poplib.py", "smtpd.py", "telnetlib.py", "aifc.py", "sunau.py", "wave.py", "audioop.py", "chunk.py", "sndhdr.py"),
    # cffi's compiler
    *("recompiler.py", "cparser.py", "vengine_cpy.py", "vengine_gen.py", "verifier.py", "setuptools_ext.py"),
}
# Modules that keep their source beside the bytecode: ours, which tracebacks then show, and those by which PyPy knows
# that a folder is its library.
KEPT_SOURCE = [*(f"{package.name}/" for package in PACKAGES), "site.py", "os.py"]
# Modules that stay in files of their own, besides those that PyPy loads by itself.
KEPT_FILES = ["site.py", "__future__.py", "scaler_start.py", "scaler_module_archive.py", "stand_ins/"]
LEFT_OUT_EXTENSIONS = ("_pypy_openssl", "_sqlite3_cffi", "_curses_cffi", "_gdbm_cffi", "_lzma_cffi", "_audioop_cffi")
LEFT_OUT_OF_PYZMQ = ("zmq/tests/", "zmq/green/", "zmq/ssh/", "zmq/eventloop/", "zmq/log/", "zmq/backend/cython/")
KEPT_SUFFIXES = {".py", ".so"}
LOCALE = Path("/usr/lib/locale/C.utf8/LC_CTYPE")
# Parts of the C library: as they are, since their maker knows best what they need of each other.
C_LIBRARY = re.compile(r"(ld-linux[^/]*|lib(c|m|dl|pthread|rt|util|resolv|anl))\.so\.\d+")
# Which libraries of the host, such as those of its name services, may ask for.
WHOLE_C_LIBRARY = [f"lib{name}.so.{number}" for name, number in {"pthread": 0, "dl": 2, "rt": 1, "resolv": 2}.items()]

SOURCE_OFFER = """\
PyPy and these libraries are those of Debian, unchanged but for where they look for each other and for how PyPy's
library stores its relocations. Some of them, the GNU C library among them, are under the GNU Lesser General Public
License: you may replace them in the folder `bin` by versions of your own. The sources are at the addresses below. For
three years after a release, the maintainers of Scaler send them to anyone who asks.

"""

EXIT_CODE_MISSING_TOOL = 3

PYC_HEADER_BYTES = 16
TRAILER_BYTES = 512
TAR_BLOCK_BYTES = 512
ZSTD = ["zstd", "--quiet", "--check", "--no-progress"]
ZSTD_LEVEL = ["--ultra", "-22", "--long=27"]
QUICK_ZSTD_LEVEL = ["-1"]


# What it is made of ---------------------------------------------------------------------------------------------------


class PyPy:
    """The PyPy to pack, as it describes itself: all in one folder, or spread over the file system as Debian has it."""

    QUESTION = (
        "import sys; early = [m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)];"
        "import json, os, platform, sysconfig; print(json.dumps(dict(early=list(map(os.path.realpath, early)),"
        "executable=os.path.realpath(sys.executable), library=os.path.dirname(os.path.realpath(os.__file__)),"
        " name=sys.implementation.name, version=list(sys.version_info[:2]), soabi=sysconfig.get_config_var('SOABI'),"
        " text=sys.version, prefix=sys.base_prefix)))"
    )

    def __init__(self, program: str, system: HostSystem) -> None:
        try:
            answer = json.loads(run(program, "-IBS", "-c", self.QUESTION, env={**os.environ, "LC_ALL": "C.UTF-8"}))
        except (BuildError, OSError) as error:
            raise MissingToolError(
                f"no PyPy: {error}\nOn Debian: apt-get install pypy3; or unpack one from pypy.org and say"
                " PYPY_HOME=/path/to/its/folder"
            ) from None
        if answer["name"] != "pypy" or answer["version"] < [3, 9]:
            raise MissingToolError(f"{program} is {answer['text']}, but PyPy 3.9 or later is wanted: set PYPY_HOME")
        self.program = program
        self.text = answer["text"]
        if isinstance(system, DebianSystem):
            system.fetch(self.text)
        self.system = system
        self.executable = system.located(answer["executable"])
        self.library = system.located(answer["library"])
        self.prefix = system.located(answer["prefix"])
        self.version = "{}.{}".format(*answer["version"])
        # Modules that it loads before it runs a program, by their paths in its library.
        self.early_modules = sorted(os.path.relpath(path, answer["library"]) for path in answer["early"])
        self.abi = "_".join(answer["soabi"].split("-")[:2])


def fingerprint(pypy: PyPy) -> str:
    """A hash of all that the result depends on."""
    digest = hashlib.sha256(f"{pypy.text} {pypy.executable} {pypy.library} {pypy.system.machine}".encode())
    for library in [pypy.executable, *pypy.system.libraries_of(pypy.executable)]:
        status = library.stat()
        digest.update(f"{library} {status.st_size} {status.st_mtime_ns}\n".encode())
    for path in (path for folder in SOURCES for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts):
        if path.is_file() and path.suffix != ".md":
            digest.update(f"{path.relative_to(TREE)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    if LOCALE.exists():
        digest.update(LOCALE.read_bytes())
    digest.update(json.dumps(programs()).encode())
    return digest.hexdigest()


def programs() -> Dict[str, str]:
    """The programs, as "module:function" by name: those that the appliance declares."""
    return {
        entry.name: entry.value
        for entry in sorted(distribution("scaler-appliance").entry_points)
        if entry.group == "console_scripts"
    }


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


# The folder that is packed --------------------------------------------------------------------------------------------


def stage(pypy: PyPy, root: Path, work: Path) -> None:
    """Make the folder that a copy will be: bin, lib/pypy3.9, programs, licenses."""
    library = root / "lib" / f"pypy{pypy.version}"
    copy_standard_library(pypy, library)
    for package in PACKAGES:
        copy_package(package, library / package.name)
    shutil.copyfile(HERE / "start.py", library / "scaler_start.py")
    shutil.copyfile(HERE / "scaler_module_archive.py", library / "scaler_module_archive.py")
    copy_package(HERE / "stand_ins", library / "stand_ins")
    unpack_wheels(pypy, library, root / "licenses", work)
    libraries = copy_binaries(pypy, root)
    write_programs(root)
    copy_locale(root)
    copy_licenses(pypy, libraries, root / "licenses")
    compile_python(pypy, library)
    names = sorted({path.stem for path in library.iterdir()})
    archive_modules(pypy, library)
    # It is there as long as nothing is known to be missing, and names what there is to import.
    (root / "complete").write_text("".join(f"{name}\n" for name in names))
    write_checksums(root)


def copy_locale(root: Path) -> None:
    """The locale by which PyPy decodes names of files: see launcher.c. It is the same for all machines."""
    if not LOCALE.exists():
        raise MissingToolError(f"there is no {LOCALE}; on Debian: apt-get install libc-bin")
    target = root / "locale" / LOCALE.parent.name
    target.mkdir(parents=True)
    shutil.copyfile(LOCALE, target / LOCALE.name)


def write_checksums(root: Path) -> None:
    """What the self-test compares the copy's files with: see start.py."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    lines = [f"{zlib.crc32(path.read_bytes()):08x} {path.relative_to(root).as_posix()}\n" for path in files]
    (root / "checksums").write_text("".join(lines))


def copy_package(source: Path, target: Path) -> None:
    """Modules, and what else they come with."""
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


def copy_standard_library(pypy: PyPy, target: Path) -> None:
    for folder, folders, files in os.walk(pypy.library):
        folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith("plat-")]
        for name in files:
            if name in LEFT_OUT or name.endswith("_build.py") or name.startswith(LEFT_OUT_EXTENSIONS):
                continue
            if Path(name).suffix in KEPT_SUFFIXES:
                copied = target / Path(folder).relative_to(pypy.library) / name
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(folder) / name, copied)


def unpack_wheels(pypy: PyPy, target: Path, licenses: Path, work: Path) -> None:
    wheels = work / "wheels" / hashlib.sha256((HERE / "requirements.txt").read_bytes()).hexdigest()[:16] / pypy.abi
    if not list(wheels.glob("*.whl")):
        platforms = [f"--platform=manylinux_2_{minor}_{pypy.system.machine}" for minor in (17, 26, 28)]
        run(
            *(sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "--no-deps", "--only-binary=:all:"),
            *("--implementation=pp", f"--python-version={pypy.version}", f"--abi={pypy.abi}", *platforms),
            *("-r", str(HERE / "requirements.txt"), "-d", str(wheels)),
        )
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "/licenses/" in name and not name.endswith("/"):
                    write(licenses / wheel.name.partition("-")[0] / name.rpartition("/")[2], archive.read(name))
                # METADATA tells a bill of materials what this is.
                is_wanted = name.endswith((".py", ".so", ".dist-info/METADATA")) or ".so." in name
                if is_wanted and not name.startswith(LEFT_OUT_OF_PYZMQ):
                    write(target / name, archive.read(name))


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def copy_binaries(pypy: PyPy, root: Path) -> List[Path]:
    """PyPy, all libraries that anything in the folder is linked with, the C library's among them, and its loader.

    Each finds the others from where it is. Returns the libraries, where the system has them.
    """
    system = pypy.system
    binaries = root / "bin"
    binaries.mkdir()
    shutil.copyfile(pypy.executable, binaries / "pypy3")
    loader = system.loader_of(pypy.executable)
    wanted: Set[Path] = set(system.libraries_of(pypy.executable))
    own = {path.name for path in root.rglob("*.so*")}
    for extension in root.rglob("*.so*"):
        wanted.update(path for path in system.libraries_of(extension) if path.name not in own)
    c_library = next(library.parent for library in wanted if library.name == "libc.so.6")
    for library in sorted({*wanted, loader, *(c_library / name for name in WHOLE_C_LIBRARY)}):
        shutil.copyfile(library, binaries / library.name)
    for name in programs():
        (binaries / name).symlink_to(loader.name)
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and is_elf(path):
            path.chmod(0o755)
            if C_LIBRARY.fullmatch(path.name):
                continue
            # Not of wheels: the sections that the wheels' own tools added do not survive it.
            if "pyzmq.libs" not in path.parts:
                run(system.strip, "--strip-unneeded", str(path))
            places = run("patchelf", "--print-rpath", str(path)).strip().split(":")
            places = [place for place in places if place.startswith("$ORIGIN")]
            places.append(f"$ORIGIN/{os.path.relpath(binaries, path.parent)}")
            # RPATH, not RUNPATH: it goes before LD_LIBRARY_PATH, so that the user's does not get in.
            run("patchelf", "--force-rpath", "--set-rpath", ":".join(places), str(path))
            if path.name.startswith("libpypy"):
                pack_relocations(path, binaries / "libc.so.6")
    return sorted(wanted)


def pack_relocations(library: Path, c_library: Path) -> None:
    try:
        if not is_known_to(c_library.read_bytes()):
            raise NotPackedError("the C library here is older than 2.36")
        library.write_bytes(packed(library.read_bytes()))
    except NotPackedError as reason:
        print(f"{library.name} stays as it is, some MB larger than it could be: {reason}")


def write_programs(root: Path) -> None:
    (root / "programs").mkdir()
    for name, entry in programs().items():
        module, _, function = entry.partition(":")
        stand_ins = ", with_stand_ins=True" if name in WITH_STAND_INS else ""
        text = f"from scaler_start import start\n\nstart({module!r}, {function!r}{stand_ins})\n"
        (root / "programs" / name).write_text(text)


def copy_licenses(pypy: PyPy, libraries: List[Path], licenses: Path) -> None:
    write(licenses / "scaler", (TREE / "LICENSE").read_bytes())
    # A portable PyPy has its terms with it. Beside one of a package are those of whatever else is installed.
    if pypy.system.package_of(pypy.executable) is None:
        for path in [pypy.prefix / "LICENSE", *pypy.prefix.glob("lib/*/LICENSE*")]:
            if path.is_file():
                write(licenses / "pypy", path.read_bytes())
    sources = set()
    for file in [pypy.executable, *libraries]:
        package = pypy.system.package_of(file)
        if package is None:
            continue  # no Debian; a portable PyPy's licence speaks of the libraries that come with it
        source, version = package.source, package.source_version
        sources.add(f"{source} {version}: https://snapshot.debian.org/package/{source}/{version}/\n")
        if package.terms.exists():
            write(licenses / package.name, package.terms.read_bytes())
    if sources:
        write(licenses / "sources", (SOURCE_OFFER + "".join(sorted(sources))).encode())


# Not by py_compile: see MARSHAL_VERSION.
COMPILE = """
import importlib.util, marshal, os, sys
root, keep, version = sys.argv[1], tuple(sys.argv[2].split()), int(sys.argv[3])
UNCHECKED = (1).to_bytes(4, "little")
for name in sys.stdin.read().split():
    path = f"{root}/{name}"
    is_kept = name.startswith(keep)
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = marshal.dumps(compile(source, name, "exec", dont_inherit=True), version)
    except SyntaxError:
        continue  # an example of an error
    target = importlib.util.cache_from_source(path) if is_kept else path + "c"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + UNCHECKED + importlib.util.source_hash(source) + code)
    if not is_kept:
        os.unlink(path)
"""


def compile_python(pypy: PyPy, library: Path) -> None:
    """Bytecode for all modules, which is used without a look at the source. Little source stays: see KEPT_SOURCE."""
    files = sorted(str(path.relative_to(library)) for path in library.rglob("*.py"))
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    command = [pypy.program, "-ISB", "-c", COMPILE, str(library), " ".join(KEPT_SOURCE), str(MARSHAL_VERSION)]
    for part in files[0::2], files[1::2]:
        run(*command, input="\n".join(part), env=environment)


def archive_modules(pypy: PyPy, library: Path) -> None:
    """Put modules in one file, but for those that come before it is read, and remove theirs."""
    modules: List[Tuple[str, bytes, bytes]] = []
    for bytecode in sorted(library.rglob("*.pyc")):
        folder, source = bytecode.parent, b""
        is_kept = folder.name == "__pycache__"  # with its source
        module = (folder.parent if is_kept else folder) / f"{bytecode.name.partition('.')[0]}.py"
        path = module.relative_to(library).as_posix()
        if path in pypy.early_modules or path.startswith(tuple(KEPT_FILES)):
            continue
        if is_kept:
            source = module.read_bytes()
            module.unlink()
        modules.append((path, bytecode.read_bytes()[PYC_HEADER_BYTES:], source))
        bytecode.unlink()
    (library / NAME).write_bytes(archived(modules))
    for folder in sorted((path for path in library.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


# The file -------------------------------------------------------------------------------------------------------------


def tar_entry(name: str, kind: bytes, mode: int, size: int = 0, target: str = "") -> bytes:
    """A header of the format ustar, without owner and time."""
    folder = ""
    if len(name) > 100:
        cut = name.index("/", len(name) - 101)
        folder, name = name[:cut], name[cut + 1 :]

    def header(checksum: bytes) -> bytes:
        return struct.pack(
            "100s8s8s8s12s12s8sc100s8s80s155s12x",
            *(name.encode(), b"%07o" % mode, b"%07o" % 0, b"%07o" % 0, b"%011o" % size, b"%011o" % 0),
            *(checksum, kind, target.encode(), b"ustar\00000", b"", folder.encode()),
        )

    return header(b"%06o\0 " % sum(header(b" " * 8)))


def tar(root: Path, paths: List[Path], is_last: bool) -> bytes:
    parts: List[bytes] = []
    for path in paths:
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            parts.append(tar_entry(name, b"2", 0o777, target=os.readlink(path)))
        elif path.is_dir():
            parts.append(tar_entry(name, b"5", 0o755))
        else:
            content = path.read_bytes()
            mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            parts += [tar_entry(name, b"0", mode, len(content)), content, bytes(-len(content) % TAR_BLOCK_BYTES)]
    if is_last:
        parts.append(bytes(2 * TAR_BLOCK_BYTES))
    return b"".join(parts)


def compressed(content: bytes, work: Path, level: List[str]) -> bytes:
    """Compress, or find it compressed from last time."""
    command = [*ZSTD, *level]
    key = hashlib.sha256(" ".join(command).encode() + content).hexdigest()
    kept = work / "compressed" / f"{key}.zst"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        raw = kept.with_suffix(f".{os.getpid()}")
        raw.write_bytes(content)
        run(*command, str(raw), "-o", str(raw.with_suffix(".half")))
        raw.unlink()
        raw.with_suffix(".half").rename(kept)
    return kept.read_bytes()


def compile_launcher(system: HostSystem, work: Path) -> bytes:
    """Compile it with musl, whose programs are a quarter of the size of the GNU C library's when linked statically."""
    from scaler_appliance.__main__ import NURSERY_SIZE

    launcher = work / "launcher"
    flags = ["-std=gnu11", "-Os", "-Wall", "-Wextra", "-s", "-Wl,--build-id=none,--gc-sections"]
    system.compile_static(HERE / "launcher.c", [*flags, f'-DNURSERY="{NURSERY_SIZE}"'], launcher, work)
    return launcher.read_bytes()


def assemble(system: HostSystem, root: Path, work: Path, level: List[str]) -> bytes:
    launcher = compile_launcher(system, work)
    everything = sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix())
    # Two frames: PyPy changes seldom, and takes nearly all the time.
    binary = [path for path in everything if path.relative_to(root).parts[0] == "bin"]
    pypy = tar(root, binary, False)
    others = tar(root, [path for path in everything if path not in set(binary)], True)
    archive = compressed(pypy, work, level) + compressed(others, work, level)
    files = [path for path in everything if path.is_file() and not path.is_symlink()]
    largest = max(files, key=lambda path: path.stat().st_size)
    unpacked = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
    trailer = (
        f"scaler archive 1\noffset {len(launcher)}\nsize {len(archive)}\nunpacked {unpacked}\n"
        f"hash {hashlib.sha256(archive).hexdigest()[:32]}\n"
        f"largest {largest.stat().st_size} {largest.relative_to(root).as_posix()}\n"
    )
    return launcher + archive + trailer.encode().ljust(TRAILER_BYTES, b"\n")


def link_programs(output: Path) -> None:
    """A link beside the file for each of its other programs: by its name it is told which one is meant."""
    for name in programs():
        link = output.with_name(name)
        if link != output:
            link.unlink(missing_ok=True)
            link.symlink_to(output.name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the scheduler with PyPy in one file.")
    parser.add_argument(
        "--pypy", default="pypy3", help="the PyPy to pack; for another machine, one of the same version"
    )
    parser.add_argument(
        "--machine", choices=sorted(DEBIAN_ARCHITECTURES), help="the machine it is for, if not this one"
    )
    parser.add_argument("--work", type=Path, help="where to keep what is in between")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--packages", type=Path, help="where to keep Debian's packages for another machine")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compress little, for tests that build and unpack it: a second instead of a minute",
    )
    options = parser.parse_args()
    level = QUICK_ZSTD_LEVEL if options.quick else ZSTD_LEVEL
    system, suffix = HostSystem(), ""
    if options.machine not in (None, system.machine):
        kept = TREE / "build" / f"debian-{DEBIAN_ARCHITECTURES[options.machine]}"
        system, suffix = DebianSystem(options.machine, (options.packages or kept).resolve()), f"-{options.machine}"
    work = (options.work or TREE / f"build/pypy{suffix}").resolve()
    output = (options.output or TREE / f"dist/pypy{suffix}" / FIRST_PROGRAM).resolve()
    try:
        pypy = PyPy(options.pypy, system)
        built_from = f"{fingerprint(pypy)} {level} {output}"
        stamp = work / "built-from"
        if output.exists() and stamp.exists() and stamp.read_text() == built_from:
            return 0
        print(f"packing PyPy {pypy.text.split('PyPy ')[-1].split()[0]} in one file: {output}")
        root = work / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        stage(pypy, root, work)
        content = assemble(system, root, work, level)
        output.parent.mkdir(parents=True, exist_ok=True)
        half = output.with_name(f".{output.name}.{os.getpid()}")
        half.write_bytes(content)
        half.chmod(0o755)
        half.rename(output)
        link_programs(output)
        stamp.write_text(built_from)
        print(f"{len(content) / 1e6:.1f} MB")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE_MISSING_TOOL if isinstance(error, MissingToolError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
