"""Looks for pickles in the files of a run, also within what is compressed in them."""

from __future__ import annotations

import io
import pickletools
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from fedbo.actors.storage.checkpoint import FRAME, LENGTHS, MAGIC

MADE = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "EXT1", "EXT2", "EXT4", "PERSID"}
LENGTH = 12  # bytes from which on a stream that only makes plain values is no accident


def pickles(content: bytes) -> list[int]:
    """List the places at which a pickle begins: of protocol 2 and later anywhere, of the older ones at the very beginning."""
    places = [place for place in range(len(content) - 1) if content[place] == 0x80 and 2 <= content[place + 1] <= 5]
    return [place for place in sorted({0, *places}) if _is_pickle(content[place : place + 100_000], place in places)]


def _is_pickle(content: bytes, headed: bool) -> bool:
    names: set[str] = set()
    try:
        for opcode, _, place in pickletools.genops(content):
            names.add(opcode.name)
            if opcode.name == "STOP":
                return bool(names & MADE) or (headed and place >= LENGTH)
    except Exception:  # whatever it is, it is no pickle
        return False
    return False


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Give what is in a file as it stands, and with what is compressed in it made plain."""
    content = path.read_bytes()
    yield "as it stands", content
    if content.startswith(MAGIC):
        body = content[len(MAGIC) + FRAME.size :]
        _, packed, _ = LENGTHS.unpack_from(body)
        yield "its nodes", zlib.decompress(body[LENGTHS.size : LENGTHS.size + packed])
    if path.suffix == ".parquet":
        table, plain = pq.read_table(path), io.BytesIO()
        pq.write_table(table, plain, compression="NONE", use_dictionary=False)
        yield "its columns", plain.getvalue()
        yield "its schema", table.schema.to_string(truncate_metadata=False).encode()
