"""Which proxy a request to the API goes through, as `kubectl` decides it.

Rules:
- The `proxy-url` of a kubeconfig file counts for its cluster in any case.
- Otherwise HTTPS_PROXY or HTTP_PROXY, by the scheme of the server, unless it is in NO_PROXY or on this host.
- NO_PROXY has names (with all names below them; with a dot in front, only these), addresses, networks (`10.0.0.0/8`),
  or `*`; names and addresses may have a port. So in Go; `urllib` of the standard library knows no networks.
- The proxy itself is spoken to by HTTP: what it forwards to an `https:` server is encrypted from end to end.
"""

from __future__ import annotations

import base64
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Mapping, NamedTuple, Optional, Union
from urllib.parse import unquote, urlsplit

from scaler.provision.kubernetes.api_errors import KubernetesAccessError

_Address = Union[IPv4Address, IPv6Address]


class Proxy(NamedTuple):
    """
    Attributes:
        authorization: of `Proxy-Authorization`; empty: none.
    """

    host: str
    port: int
    authorization: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def proxy_of(url: str, proxy_url: str, environment: Mapping[str, str]) -> Optional[Proxy]:
    """The proxy of requests to a server; None: there is none.

    Parameters:
        url: of the server.
        proxy_url: of its kubeconfig file; empty: it names none.
    Raises KubernetesAccessError.
    """
    if proxy_url:
        return _parsed(proxy_url, "proxy-url")
    server = urlsplit(url)
    variable = f"{server.scheme.upper()}_PROXY"
    given = _variable(environment, variable)
    if not given or _is_excepted(server.hostname or "", _port_of(url), _variable(environment, "NO_PROXY")):
        return None
    return _parsed(given if "://" in given else f"http://{given}", variable)


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _parsed(given: str, where: str) -> Proxy:
    try:
        parts = urlsplit(given)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host, port = "", 0
    if not host:
        raise KubernetesAccessError(
            f"{where} must be a URL such as http://proxy:3128, got {_without_password(given)!r}"
        )
    if parts.scheme != "http":
        raise KubernetesAccessError(
            f"{where} must be an http:// proxy, got {_without_password(given)!r}: {parts.scheme} proxies are not"
            " supported; the connection to an https:// server is encrypted through an http:// proxy, too"
        )
    authorization = ""
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return Proxy(host, port, authorization)


def _without_password(url: str) -> str:
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Whether a server is reached without a proxy."""
    host = host.lower().rstrip(".")
    address = _address_of(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(each.strip().lower(), host, port, address) for each in exceptions.split(","))


def _address_of(text: str) -> Optional[_Address]:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _matches(exception: str, host: str, port: int, address: Optional[_Address]) -> bool:
    if exception == "*":
        return True
    if "/" in exception:
        try:
            return address is not None and address in ip_network(exception, strict=False)
        except ValueError:
            return False
    if _address_of(exception) is None:  # an address of version 6 has colons, too
        name, colon, digits = exception.rpartition(":")
        if colon and digits.isdigit():
            if int(digits) != port:
                return False
            exception = name
    exception = exception.strip("[]")
    if not exception:
        return False
    if address is not None:
        return _address_of(exception) == address
    suffix = exception[1:] if exception.startswith("*.") else exception
    return host.endswith(suffix if suffix.startswith(".") else f".{suffix}") or host == suffix
