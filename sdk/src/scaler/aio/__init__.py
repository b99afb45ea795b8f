"""Scaler for asyncio: a client that needs no thread.

import asyncio
from scaler import aio

async def main():
    async with aio.Client() as client:
        print(await client.submit(pow, 2, 10))
        async for power in client.map_stream(pow, range(10), range(10)):
            print(power)

asyncio.run(main())
"""

from scaler.aio.aio_client import Client
from scaler.aio.aio_future import TaskFuture

__all__ = ["Client", "TaskFuture"]
