"""A web service whose answers are computed by tasks: Starlette with `scaler.aio`.

With a scheduler on this host, serve it: `uvicorn web_service:app`. As a program, it starts a cluster, and asks itself.

Prints:
    {"number":10,"factorial":3628800}
    {"error":"took longer than 0.5 seconds"}
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import time
import urllib.request
from typing import Any, AsyncIterator, Dict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from scaler import SchedulerClusterCombo, aio

TIMEOUT_SECONDS = 0.5


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[Dict[str, Any]]:
    """One client for all requests, in the server's event loop."""
    async with aio.Client() as client:
        yield {"client": client}


async def factorial(request: Request) -> JSONResponse:
    number = request.path_params["number"]
    result = await request.state.client.submit(math.factorial, number)
    return JSONResponse({"number": number, "factorial": result})


async def slow(request: Request) -> JSONResponse:
    """The time limit stops the task, and frees its slot."""
    try:
        await asyncio.wait_for(request.state.client.submit(time.sleep, 60), TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        return JSONResponse({"error": f"took longer than {TIMEOUT_SECONDS} seconds"}, status_code=504)
    return JSONResponse({})


app = Starlette(routes=[Route("/factorial/{number:int}", factorial), Route("/slow", slow)], lifespan=lifespan)


def ask(url: str) -> str:
    """The body of an answer, whatever its status."""
    opener = urllib.request.build_opener(AnyStatus)
    with opener.open(url) as answer:
        return str(answer.read().decode())


class AnyStatus(urllib.request.HTTPErrorProcessor):
    """Leaves answers with an error's status as they are."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.ensure_future(server.serve([listener]))
    loop = asyncio.get_running_loop()
    for path in ("/factorial/10", "/slow"):
        print(await loop.run_in_executor(None, ask, url + path))
    server.should_exit = True
    await serving


if __name__ == "__main__":
    with SchedulerClusterCombo(n_workers=2, logging_level="WARNING") as cluster:
        os.environ["SCALER_ADDRESS"] = cluster.get_address()
        asyncio.run(main())
