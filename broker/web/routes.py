"""The routes of the HTTP server: one line each.

A handler gets the broker's View and what was asked, and returns an Answer. It may await, but not for long
(server.py has the deadline), and must not change anything unless its method is POST.
Left to others: what the handlers answer (their files), HTTP (server.py).
"""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from ...base.values import dataclass
from . import api
from .answer import Answer, Asked, as_json, refused
from .health import health, ready
from .metrics.exposition import metrics
from .page import asset, page, wants_page
from .view import View
from .why import why, why_questions

Handler = Callable[[View, Asked], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path, in which `{name}` stands for one part, and what answers it."""

    path: str
    handler: Handler
    help: str
    method: str = "GET"
    early: bool = False  # answered while the broker starts, too

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The named parts of a path that this route answers."""
        pattern = self.path.strip("/").split("/")
        if len(pattern) != len(segments):
            return None
        parts: dict[str, str] = {}
        for wanted, segment in zip(pattern, segments, strict=True):
            if wanted.startswith("{"):
                parts[wanted[1:-1]] = segment
            elif wanted != segment:
                return None
        return parts


async def index(view: View, asked: Asked) -> Answer:
    """The page for a browser, the routes for others."""
    if wants_page(asked):
        return page()
    routes = {f"{route.method} {route.path}": route.help for route in ROUTES}
    return as_json({"broker": view.config.broker_id, "phase": view.phase, "routes": routes})


ROUTES: tuple[Route, ...] = (
    Route("/", index, "the page for a browser, or this list", early=True),
    Route("/health", health, "whether the process works: 200 or 503", early=True),
    Route("/metrics", metrics, "counts and durations, for Prometheus", early=True),
    Route("/why", why_questions, "questions about a partition"),
    Route("/why/{question}/{partition}", why, "why a record, a replica or a partition is as it is"),
    Route("/ready", ready, "whether writes are acknowledged here: 200 or 503", early=True),
    Route("/page/{name}", asset, "a file of the page", early=True),
    Route("/api/cluster", api.cluster, "brokers and partitions: ?search=&troubled&internal&at=&limit="),
    Route("/api/decisions", api.decisions, "what brokers decided, and why: ?limit="),
    Route("/api/timeline", api.timeline, "leaderships and ISR changes: as /api/cluster"),
    Route("/api/groups", api.groups, "consumer groups with their lag: ?search="),
    Route("/api/groups/{name}", api.group, "a group with members and offsets"),
    Route(
        "/api/topics/{topic}/{partition}/records",
        api.records,
        "records: ?offset= or ?time= (ms), else the last; ?limit=&isolation=",
    ),
    Route("/api/topics", api.create, "create a topic, if strandline.web.create.topics=true", method="POST"),
)


async def answer(view: View, method: str, path: str, asked: Asked) -> Answer:
    """What the route of this path answers. `path` is as it was sent, still with its escapes."""
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    allowed: list[str] = []
    for route in ROUTES:
        parts = route.match(segments)
        if parts is None:
            continue
        if method != route.method and (method, route.method) != ("HEAD", "GET"):
            allowed.append(route.method)
            continue
        if view.broker is None and not route.early:
            return refused(503, "the broker is starting")
        return await route.handler(view, Asked(parts, asked.query, asked.accept, asked.body))
    if allowed:
        return refused(405, f"use {' or '.join(allowed)}")
    return refused(404, "no such page: see /")
