"""Who may ask the HTTP server: pages of other sites may not, whatever name they found for this machine."""

import pytest

from strandline.broker.web.guard import Headers, host_of, why_refused

NAMES = frozenset({"strandline-broker-1"})


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9192", "localhost:9192", "LOCALHOST", "[::1]:9192", "10.1.2.3", "strandline-broker-1:80"],
)
def test_addresses_and_known_names_are_answered(host: str) -> None:
    assert why_refused(Headers(host), NAMES) is None


@pytest.mark.parametrize(
    "host", ["evil.example:9192", "127.0.0.1.evil.example", "localhost.evil.example", "1"]
)
def test_a_name_that_was_bound_to_our_address_is_refused(host: str) -> None:
    assert "is not known here" in (why_refused(Headers(host), NAMES) or "")


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "user@127.0.0.1", "[::1", "localhost:port", "127.0.0.1,evil"]
)
def test_a_malformed_host_is_refused(host: str) -> None:
    assert host_of(host) is None
    assert why_refused(Headers(host), NAMES) == "the Host header is missing or malformed"


def test_only_our_own_pages_may_ask() -> None:
    host = "localhost:9192"
    assert why_refused(Headers(host, origin="http://localhost:9192"), NAMES) is None
    for origin in ("http://evil.example", "http://localhost:9193", "http://localhost", "null"):
        assert why_refused(Headers(host, origin=origin), NAMES)


def test_a_link_may_lead_here_but_a_foreign_page_may_not_embed_us() -> None:
    host = "localhost:9192"
    assert why_refused(Headers(host, fetch_site="cross-site", fetch_mode="navigate"), NAMES) is None
    assert why_refused(Headers(host, fetch_site="same-origin", fetch_mode="cors"), NAMES) is None
    assert why_refused(Headers(host, fetch_site="cross-site", fetch_mode="no-cors"), NAMES)
