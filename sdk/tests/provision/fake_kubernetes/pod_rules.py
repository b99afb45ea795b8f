"""What Kubernetes accepts as a pod: the schemas of its OpenAPI description, and rules that no schema has.

Rules:
- The schemas are those of the package kubernetes-validate: fields and types are Kubernetes' own.
- An error of the schemas is status 400, as the strict decoding of the API server is. One of the rules is 422.
- The rules here are those that a pod of a unit can break. The API server has more.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, Iterator, List, Optional

import jsonschema
import referencing
from kubernetes_validate.utils import latest_version, schema_contents

Json = Dict[str, Any]

_DEFINITIONS = "_definitions.json"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_QUANTITY = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII)
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "": 1.0}
_UNITS.update({letter: 1e3 ** (power + 2) for power, letter in enumerate("MGTPE")})
_UNITS.update({f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")})


class InvalidError(Exception):
    """A body is not accepted.

    Attributes:
        status: 400 or 422.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def check_pod(pod: Json, is_strict: bool) -> None:
    """Raises InvalidError, as the API server refuses a new pod."""
    check_schema(pod, "io.k8s.api.core.v1.Pod", is_strict)
    fault = next(_faults(pod), None)
    if fault is not None:
        raise InvalidError(422, f'Pod "{pod["metadata"].get("name", "")}" is invalid: {fault}')


def check_schema(body: Json, definition: str, is_strict: bool = True) -> None:
    """Raises InvalidError if a body does not have the fields and types of a definition."""
    fault = jsonschema.exceptions.best_match(_validator(definition, is_strict).iter_errors(body))
    if fault is not None:
        kind = body.get("kind", "")
        where = ".".join(str(each) for each in fault.absolute_path)
        raise InvalidError(
            400,
            f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {where}: {fault.message}',
        )


@functools.cache
def _validator(definition: str, is_strict: bool) -> Any:
    version = latest_version()
    folder = f"kubernetes-json-schema/v{version}-local{'-strict' if is_strict else ''}"
    contents = schema_contents(f"{folder}/{_DEFINITIONS}", version)
    resource = referencing.Resource.from_contents(contents)
    registry: Any = resource @ referencing.Registry()
    schema = {"$ref": f"{resource.id()}#/$defs/{definition}"}
    return jsonschema.Draft202012Validator(schema, registry=registry)


def amount_of(quantity: Any) -> float:
    """The number that a quantity stands for."""
    text = str(quantity)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"quantities must match the regular expression {_QUANTITY.pattern!r}")
    suffix = found[2] or ""
    return float(found[1]) * (10.0 ** int(suffix[1:]) if suffix[:1] in ("e", "E") and suffix[1:] else _UNITS[suffix])


def _faults(pod: Json) -> Iterator[str]:
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    name = metadata.get("name", "")
    if not name:
        yield "metadata.name: Required value: name or generateName is required"
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case'
    for label, value in (metadata.get("labels") or {}).items():
        if not _LABEL_NAME.fullmatch(label):
            yield f'metadata.labels: Invalid value: "{label}": name part must consist of alphanumeric characters'
        if not _LABEL_VALUE.fullmatch(value):
            yield f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or consist of'
    for owner in metadata.get("ownerReferences") or []:
        if not all(owner.get(field) for field in ("apiVersion", "kind", "name", "uid")):
            yield "metadata.ownerReferences: Invalid value: uid, name, kind and apiVersion must not be empty"
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        yield f'spec.restartPolicy: Unsupported value: "{spec["restartPolicy"]}"'
    if spec.get("terminationGracePeriodSeconds", 30) < 0:
        yield "spec.terminationGracePeriodSeconds: Invalid value: must be greater than or equal to 0"
    if not 0 < spec.get("activeDeadlineSeconds", 1) < 2**31:
        yield "spec.activeDeadlineSeconds: Invalid value: must be between 1 and 2147483647, inclusive"
    yield from _volume_faults(spec)
    for index, toleration in enumerate(spec.get("tolerations") or []):
        if toleration.get("operator", "Equal") not in ("Equal", "Exists"):
            yield f"spec.tolerations[{index}].operator: Unsupported value"
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            yield f"spec.tolerations[{index}].operator: Invalid value: value must be empty when `operator` is 'Exists'"
        if toleration.get("effect", "") not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield f'spec.tolerations[{index}].effect: Unsupported value: "{toleration["effect"]}"'
    if not spec.get("containers"):
        yield "spec.containers: Required value"
    names: List[str] = []
    for index, container in enumerate(spec.get("containers") or []):
        where = f"spec.containers[{index}]"
        if not container.get("image"):
            yield f"{where}.image: Required value"
        if container["name"] in names:
            yield f'{where}.name: Duplicate value: "{container["name"]}"'
        names.append(container["name"])
        yield from _resource_faults(f"{where}.resources", container.get("resources") or {})


def _volume_faults(spec: Json) -> Iterator[str]:
    volumes = [each["name"] for each in spec.get("volumes") or []]
    if len(set(volumes)) < len(volumes):
        yield f'spec.volumes: Duplicate value: "{next(each for each in volumes if volumes.count(each) > 1)}"'
    for index, container in enumerate(spec.get("containers") or []):
        paths: List[str] = []
        for mount in container.get("volumeMounts") or []:
            if mount["name"] not in volumes:
                yield f'spec.containers[{index}].volumeMounts: Not found: "{mount["name"]}"'
            if mount["mountPath"] in paths:
                path = mount["mountPath"]
                yield f'spec.containers[{index}].volumeMounts.mountPath: Invalid value: "{path}": must be unique'
            paths.append(mount["mountPath"])


def _resource_faults(where: str, resources: Json) -> Iterator[str]:
    amounts: Dict[str, Dict[str, float]] = {"requests": {}, "limits": {}}
    for field, of in amounts.items():
        for name, quantity in (resources.get(field) or {}).items():
            try:
                of[name] = amount_of(quantity)
            except ValueError as error:
                yield f"{where}.{field}.{name}: Invalid value: {quantity!r}: {error}"
                return
            if name not in _NATIVE and "/" not in name and not name.startswith("hugepages-"):
                yield f"{where}.{field}[{name}]: Invalid value: must be a standard resource type or fully qualified"
            if "/" in name and of[name] != int(of[name]):
                yield f"{where}.{field}[{name}]: Invalid value: must be an integer"
    for name, amount in amounts["requests"].items():
        limit: Optional[float] = amounts["limits"].get(name)
        if "/" in name and limit != amount:
            yield f"{where}.requests: Invalid value: must be equal to {name} limit of {limit}"
        elif limit is not None and amount > limit:
            yield f"{where}.requests: Invalid value: must be less than or equal to {name} limit of {limit:g}"
