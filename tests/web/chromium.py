"""Drives a page of a headless Chromium over its DevTools protocol: open, evaluate, press keys, see it.

Small on purpose: one browser, one page. What the page logs as an error, which exceptions nobody caught and
which addresses it asked for is kept, so that tests can look at it.
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

COMMAND = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0", "--lang=en-US",
)  # fmt: skip
START_S, CALL_S, END_S = 60.0, 30.0, 10.0
LOOK_S = 0.05
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27}


class Failed(AssertionError):
    """The page raised an exception, or never came to be as it should."""


class Page:
    """The one page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self.expected: list[str] = []  # parts of errors that the test means to cause
        self.asked: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None

    async def begin(self, width: int, height: int) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol. Raises Failed with what the browser says."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **session})
        async with asyncio.timeout(CALL_S):
            answer = await future
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    async def listen(self) -> None:
        """Take answers and events until the connection ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                future = self._waiting.pop(said["id"], None)
                if future is not None and not future.done():
                    future.set_result(said)
            else:
                self._happened(said["method"], said["params"])

    def _happened(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])

    async def open(self, url: str) -> None:
        """Go there."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise Failed(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    async def until(self, expression: str, within_s: float = 30.0) -> Any:
        """Wait until the expression is true; returns its value."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(Failed):  # between two documents there may be none
                        if value := await self.evaluate(expression):
                            return value
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            shows = await self.evaluate("document.body.innerText")
            raise Failed(f"not within {within_s:g} s: {expression}\nerrors: {self.errors}\n{shows}") from None

    async def text(self, selector: str) -> str:
        """What an element shows."""
        return str(await self.until(f"document.querySelector({json.dumps(selector)})?.innerText"))

    async def press(self, key: str) -> None:
        """A key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = KEYS.get(key, ord(key[0].upper()))
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def write(self, text: str) -> None:
        """Text into the field that has the focus."""
        await self.call("Input.insertText", text=text)

    async def prefer(self, scheme: str) -> None:
        """The system's wish: light or dark."""
        wish = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=wish)

    async def picture(self, **clip: float) -> bytes:
        """A PNG of what is seen, or of a part of the page."""
        part = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        found = await self.call("Page.captureScreenshot", format="png", **part)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def chromium(directory: Path, width: int = 1280, height: int = 900) -> AsyncIterator[Page]:
    """A browser with a profile of its own in `directory`; ended with all of its processes."""
    assert COMMAND is not None, "the caller has looked whether there is one"
    profile = directory / "chromium"
    process = await asyncio.create_subprocess_exec(
        COMMAND, *FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        place = await _place(profile, process)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://{place}", max_msg_size=1 << 28) as socket,
        ):
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            try:
                await page.begin(width, height)
                yield page
            finally:
                listening.cancel()
                await asyncio.wait([listening])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        async with asyncio.timeout(END_S):
            await process.wait()


async def _place(profile: Path, process: asyncio.subprocess.Process) -> str:
    """Host, port and path of the browser's socket, which it writes to a file when it listens."""
    written = profile / "DevToolsActivePort"
    async with asyncio.timeout(START_S):
        while True:
            lines = written.read_text().split("\n") if written.exists() else []
            if len(lines) >= 2 and lines[1]:
                return f"127.0.0.1:{lines[0]}{lines[1]}"
            if process.returncode is not None:
                raise Failed(f"{COMMAND} ended with status {process.returncode}")
            await asyncio.sleep(LOOK_S)
