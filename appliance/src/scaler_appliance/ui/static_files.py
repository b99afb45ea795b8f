"""The page's own files, from the package, served by Starlette.

Rule: browsers cache files and revalidate them each time. A file's entity tag depends on the version of this package as
well as on its time and size, because files of reproducible builds all have the same time.
"""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import PurePath
from typing import Any, Optional, Tuple, Union

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from scaler_appliance import __version__

_TYPES = {  # types that some systems lack, or know by other names
    ".js": "text/javascript",
    ".md": "text/plain",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


def own_folder() -> str:
    """The folder of the package's files."""
    return str(resources.files("scaler_appliance.ui") / "static")


class PageFiles(StaticFiles):
    """All files below a folder.

    Parameters:
        folder: may be missing, because a build may have no pages.
    """

    def __init__(self, folder: Union[str, os.PathLike[str]]) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.is_there = os.path.isdir(folder)

    def lookup_path(self, path: str) -> Tuple[str, Optional[os.stat_result]]:
        """The path of a file; older versions of Starlette fail for names that no file can have."""
        return ("", None) if "\0" in path else super().lookup_path(path)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """The file, or the response that it has not changed."""
        origin = f"{__version__} {stat_result.st_mtime} {stat_result.st_size}"
        tag = hashlib.sha256(origin.encode()).hexdigest()[:32]
        headers = {"Cache-Control": "no-cache", "ETag": f'"{tag}"'}
        media_type = _TYPES.get(PurePath(full_path).suffix)
        response = FileResponse(full_path, status_code, headers, media_type, stat_result=stat_result)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response
