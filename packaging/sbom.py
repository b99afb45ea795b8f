"""The bill of materials of released files, in CycloneDX's JSON, made from what is in the files.

Rules:
- Wheels, source archives and zip files (a pex is one) are read: each `METADATA` or `PKG-INFO` in them is a component.
- A program is asked with `--version`, and names its interpreter and libzmq. What it unpacks for that is read too: the
  metadata of packages, and each shared library by its hash.
- A program for another machine is asked by qemu.
- The same files make the same bill, byte for byte.
"""

from __future__ import annotations

import email.parser
import hashlib
import json
import os
import re
import subprocess
import tarfile
import tempfile
import uuid
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List

from machines import command_for, machine_of

Component = Dict[str, Any]

VERSION_LINE = re.compile(
    r"(?P<name>\S+) (?P<version>\S+), .*?(?P<python>\w+) (?P<python_version>[\d.]+)[^,]*, libzmq (?P<zmq>[\d.]+)"
)
SHARED_LIBRARY = re.compile(r"\.so(\.\d+)*$")


def bill_of(files: List[Path]) -> str:
    """The document about these files."""
    components = [_file(path) for path in sorted(files, key=lambda path: path.name)]
    identity = "".join(component["hashes"][0]["content"] for component in components)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "scaler", "bom-ref": "scaler"}},
        "components": components,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def sha256_of(path: Path) -> str:
    """In hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _file(path: Path) -> Component:
    parts: Dict[str, Component] = {}
    for part in _parts(path):
        of_content = "".join(f"@{digest['content'][:16]}" for digest in part.get("hashes", []))
        part["bom-ref"] = f"{path.name}#{part.get('purl') or part['name'] + of_content}"
        parts[part["bom-ref"]] = part
    return {
        "type": "file",
        "name": path.name,
        "bom-ref": path.name,
        "hashes": [{"alg": "SHA-256", "content": sha256_of(path)}],
        "components": [parts[name] for name in sorted(parts)],
    }


def _parts(path: Path) -> Iterator[Component]:
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.name == "PKG-INFO" and len(name.parts) == 2:
                    file = archive.extractfile(member)
                    assert file is not None, member.name
                    yield _package(file.read())
        return
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                if entry.endswith(".dist-info/METADATA"):
                    yield _package(archive.read(entry))
    if path.suffix != ".whl":
        yield from _parts_of_program(path)


def _parts_of_program(path: Path) -> Iterator[Component]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SCALER_CACHE_HOME": folder, "PEX_ROOT": f"{folder}/pex"}
        said = subprocess.run(
            [*command_for(machine_of(path)), str(path.resolve()), "--version"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        match = VERSION_LINE.search(" ".join(said.split()))
        if match is None:
            raise ValueError(f"{path} --version does not say what it is made of: {said!r}")
        yield {"type": "application", "name": match["name"], "version": match["version"]}
        yield {"type": "platform", "name": match["python"], "version": match["python_version"]}
        yield {"type": "library", "name": "libzmq", "version": match["zmq"]}
        for unpacked in sorted(Path(folder).rglob("*")):
            if unpacked.is_symlink() or not unpacked.is_file():
                continue
            if unpacked.name == "METADATA" and unpacked.parent.suffix == ".dist-info":
                yield _package(unpacked.read_bytes())
            elif SHARED_LIBRARY.search(unpacked.name):
                hashes = [{"alg": "SHA-256", "content": sha256_of(unpacked)}]
                yield {"type": "library", "name": unpacked.name, "hashes": hashes}


def _package(metadata: bytes) -> Component:
    fields = email.parser.BytesParser().parsebytes(metadata)
    name, version = str(fields["Name"]), str(fields["Version"])
    purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"
    component: Component = {"type": "library", "name": name, "version": version, "purl": purl}
    licence = fields["License-Expression"] or fields["License"]
    if licence and "\n" not in licence:
        component["licenses"] = [{"license": {"name": str(licence)}}]
    return component
