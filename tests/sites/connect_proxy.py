"""An HTTP proxy that knows CONNECT alone; with a lifetime it drops each tunnel after some time, as forgetful NATs do.

python connect_proxy.py HOST PORT LIFETIME FILE

It writes the target of each tunnel into the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either side ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lifetime: float, file: Path) -> None:
    """Serve one connection of a site."""
    other: asyncio.StreamWriter | None = None
    try:
        method, target, *_ = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split()
        host, _, port = target.rpartition(":")
        if method != "CONNECT":
            return
        far, other = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with file.open("a", encoding="ascii") as noted:
            noted.write(f"{target}\n")
        both = [asyncio.ensure_future(relay(reader, other)), asyncio.ensure_future(relay(far, writer))]
        seconds = random.uniform(0.2, 2.0) * lifetime if lifetime else None
        _, open_ones = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in open_ones:
            task.cancel()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        for end in (writer, other):
            if end is not None and lifetime:
                end.transport.abort()  # without a word, as a wire that was pulled
            elif end is not None:
                end.close()


async def main(host: str, port: int, lifetime: float, file: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: tunnel(reader, writer, lifetime, file), host, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
