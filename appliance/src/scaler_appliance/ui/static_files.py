"""The page's own files, from the package.

Rules:
- A file is served if it is one of those that were there at the start: no path of a request ever reaches a file system.
- Browsers keep files and ask each time whether they changed: after an upgrade no page is made of two versions.
"""

from __future__ import annotations

import hashlib
import mimetypes
from importlib import resources
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from starlette.responses import Response

CACHE = "no-cache"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "md": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}


class StaticFile(NamedTuple):
    content: bytes
    content_type: str
    etag: str

    def response(self, headers: Mapping[str, str]) -> Response:
        """The file, or that it has not changed; `headers` are the request's."""
        kept = {"ETag": self.etag, "Cache-Control": CACHE}
        if _names(headers.get("if-none-match", ""), self.etag):
            return Response(status_code=304, headers=kept)
        return Response(self.content, media_type=self.content_type, headers=kept)


def _names(condition: str, etag: str) -> bool:
    candidates = [each.strip() for each in condition.split(",")]
    return "*" in candidates or etag in candidates or f"W/{etag}" in candidates


class StaticFiles:
    """All files below a folder, by their path in it.

    Parameters:
        folder: a path, or what stands for one in an archive; by default the package's own.
    """

    def __init__(self, folder: Optional[Any] = None) -> None:
        root = resources.files("scaler_appliance.ui") / "static" if folder is None else folder
        self._sources: Dict[str, Any] = dict(_files(root, "")) if root.is_dir() else {}
        self._read: Dict[str, StaticFile] = {}

    def get(self, path: str) -> Optional[StaticFile]:
        """None when there is no such file."""
        if path not in self._sources:
            return None
        if path not in self._read:
            content = self._sources[path].read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            self._read[path] = StaticFile(content, _type_of(path), etag)
        return self._read[path]


def _files(folder: Any, prefix: str) -> Iterator[Tuple[str, Any]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


def _type_of(path: str) -> str:
    suffix = path.rpartition(".")[2].lower()
    return _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
