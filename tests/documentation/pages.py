"""The documentation as data: pages, their fenced blocks, tables, headings, links and inline code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
PLUGINS = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "plugins").rglob("*.md")))
RECORDS = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks" / "results").glob("*.md")))  # of the past


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the number of its first line, its language, its text, and the comment just above it."""

    page: str
    line: int
    language: str
    text: str
    comment: str

    def marked(self, word: str) -> str | None:
        """Give the reason of a comment `<!-- WORD: REASON -->`, or None."""
        found = re.fullmatch(rf"{word}: (.+)", self.comment)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Grid:
    """A table: its page, the number of its first line, its cells, and the text of the section that it stands in."""

    page: str
    line: int
    rows: tuple[tuple[str, ...], ...]
    section: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def text_of(name: str) -> str:
    """Read a page."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def blocks(*languages: str) -> tuple[Block, ...]:
    """List the fenced blocks of all pages in these languages, or in all."""
    return tuple(block for name in NAMES for block in _blocks(name) if not languages or block.language in languages)


def _blocks(name: str) -> Iterator[Block]:
    lines = text_of(name).splitlines()
    opened = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        above = re.fullmatch(r"<!-- (.*) -->", lines[opened - 1])
        inside = "\n".join(lines[opened + 1 : number])
        yield Block(name, opened + 2, lines[opened][3:], inside, above[1] if above else "")
        opened = None
    assert opened is None, f"{name}: a block is not closed"


@cache
def prose(name: str) -> str:
    """Give a page without its fenced blocks, line by line as it was."""
    kept, inside = [], False
    for line in text_of(name).splitlines():
        fence = line.startswith("```")
        kept.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(kept)


def inline(name: str) -> list[str]:
    """List the inline code of a page."""
    return re.findall(r"`([^`]+)`", prose(name))


def sections(name: str) -> Iterator[tuple[int, str]]:
    """List the sections of a page, from each heading to the next: the number of the first line, and the text."""
    lines = prose(name).splitlines()
    starts = [0, *(number for number, line in enumerate(lines) if line.startswith("#"))]
    for first, last in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield first + 1, "\n".join(lines[first:last])


@cache
def grids(name: str) -> tuple[Grid, ...]:
    """List the tables of a page."""
    return tuple(grid for first, section in sections(name) for grid in _grids(name, first, section))


def _grids(name: str, first: int, section: str) -> Iterator[Grid]:
    for found in re.finditer(r"(?:^\|.*\n?)+", section, re.MULTILINE):
        rows = tuple(tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in found[0].splitlines())
        yield Grid(name, first + section[: found.start()].count("\n"), (rows[0], *rows[2:]), section)


def anchors(name: str) -> set[str]:
    """List the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", prose(name), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(next(each for each in (slug, *(f"{slug}-{n}" for n in range(1, 99))) if each not in found))
    return found
