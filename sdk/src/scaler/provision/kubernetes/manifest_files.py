"""Files in YAML or JSON: kubeconfig files, and templates of pods.

Rule: YAML is read by PyYAML if it is installed (`scaler-sdk[kubernetes]`). JSON needs nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict


class ManifestError(Exception):
    """A file cannot be read."""


def read_manifest(path: Path) -> Dict[str, Any]:
    """The mapping in a file. Raises ManifestError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: {error}") from error
    content: object
    try:
        content = json.loads(text)
    except ValueError:
        content = _yaml(path, text)
    if not isinstance(content, dict):
        raise ManifestError(f"{path}: expected a mapping")
    return content


def _yaml(path: Path, text: str) -> object:
    try:
        import yaml
    except ImportError:
        raise ManifestError(
            f"{path} is no JSON, and YAML needs PyYAML: pip install 'scaler-sdk[kubernetes]', or convert the file"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ManifestError(f"{path}: {error}") from error
