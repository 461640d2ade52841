"""Checks that a host name can be looked up at all, before it is registered (RFC 1035, 2.3.4; RFC 3490).

A name that cannot be encoded fails in every broker and client that reads it from the registration, and no
retry helps. So we refuse it at the start. Left to others: whether the name resolves.
"""

import re
from ipaddress import ip_address

NAME_BYTES_MAX = 253
LABEL = re.compile(rb"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
RULE = (
    "an IP address, or labels of 1 to 63 letters, digits, '-' or '_', separated by dots, at most "
    f"{NAME_BYTES_MAX} characters"
)


def why_no_host(host: str) -> str | None:
    """Why this is neither an IP address nor a name that can be looked up; None if it is one of them."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        pass
    else:
        return None
    name = host.removesuffix(".")
    for number, label in enumerate(name.split("."), 1):
        try:
            encoded = label.encode("idna")
        except UnicodeError:
            encoded = b""
        if not LABEL.fullmatch(encoded):
            return f"label {number}, {label[:64]!r}, is invalid; expected {RULE}"
    if len(name.encode("idna")) > NAME_BYTES_MAX:
        return f"it is too long; expected {RULE}"
    return None
