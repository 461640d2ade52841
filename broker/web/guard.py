"""Who may ask the HTTP server: pure checks of a request's headers.

A page of another site runs in the user's browser, which reaches 127.0.0.1 and whatever else the user reaches.
It must neither read answers nor change anything. A request from such a page names its Origin; after DNS
rebinding the browser takes the page for ours, but Host still has the name of the foreign site. So Host has to
be an address or a name known here, and Origin, where there is one, the same place as Host.
Left to others: limits on sizes, connections and time (server.py).
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from ...base.values import dataclass


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers that tell on whose behalf a request comes; empty if absent."""

    host: str = ""
    origin: str = ""
    fetch_site: str = ""
    fetch_mode: str = ""


def why_refused(headers: Headers, names: Collection[str]) -> str | None:
    """Why this request is not answered; None if it is. `names` are the known host names, in lower case."""
    host = host_of(headers.host)
    if host is None:
        return "the Host header is missing or malformed"
    if not (_is_address(host) or host == "localhost" or host.removesuffix(".") in names):
        return (
            f"the host name {host!r} is not known here: ask by an IP address, or add the name to "
            "strandline.web.hosts"
        )
    if headers.origin and headers.origin.lower() not in _own_origins(headers.host):
        return "requests from pages of other sites are refused"
    if headers.fetch_site.lower() == "cross-site" and headers.fetch_mode.lower() != "navigate":
        return "requests from pages of other sites are refused"
    return None


def host_of(header: str) -> str | None:
    """The name or address in a Host header, in lower case and without brackets; None if it is malformed."""
    text = header.strip()
    if not text or any(character in text for character in "/\\@?#, "):
        return None
    try:
        parts = urlsplit(f"//{text}")
        return parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        return None


def _own_origins(host: str) -> tuple[str, str]:
    """This server's origins; with https, a proxy in front of it ends TLS."""
    place = host.strip().lower()
    return f"http://{place}", f"https://{place}"


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
