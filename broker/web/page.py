"""The web page: files of the package, read once and served as they are.

Plain HTML, CSS and ES modules, no build step; nothing comes from another place, so it works offline.
Left to others: what it shows (page/), the data (api.py), the JSON list of routes (routes.py).
"""

from hashlib import blake2b
from importlib.resources import files

from .answer import Answer, Asked, refused
from .view import View

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HTML = "index.html"


def _file(name: str, body: bytes) -> Answer:
    headers = {"ETag": f'"{blake2b(body, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    return Answer(body, TYPES[name.rpartition(".")[2]], 200, headers)


def _files() -> dict[str, Answer]:
    """Read while the HTTP server is being loaded, in a thread."""
    found = files(__package__).joinpath("page").iterdir()
    return {
        each.name: _file(each.name, each.read_bytes())
        for each in found
        if each.name.rpartition(".")[2] in TYPES
    }


FILES = _files()


def wants_page(asked: Asked) -> bool:
    """Whether the client is a browser that shows HTML."""
    return "text/html" in asked.accept and asked.query.get("format") != "json"


def page() -> Answer:
    """The page itself."""
    return FILES[HTML]


async def asset(view: View, asked: Asked) -> Answer:
    """A file of the page."""
    return FILES.get(asked.parts["name"]) or refused(404, "no such file: see /")
