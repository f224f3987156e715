"""Every command line of the pages: options exist, files and targets are there; nothing is carried out but `fedbo validate`."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest

from fedbo.cli import _command, main
from fedbo.commands.help import TITLES
from fedbo.commands.help import commands as declared
from fedbo.figures.plot import KINDS

SHELLS = ("sh", "console", "bash")
TARGETS = set(re.findall(r"^([\w-]+):", (pages.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
VALUES = {"N": "1", "K": "1"}  # placeholders that stand for numbers; other ones are words, as any value is


def _lines(page: str) -> Iterator[str]:
    """List the commands of a page: lines of its shell blocks, and inline code that begins as a command does."""
    for block in pages.blocks(*SHELLS):
        if block.page == page:
            text = re.sub(r"\\\n\s*", "", block.text)
            for line in text.splitlines():
                if block.language == "console" and not line.startswith("$ "):
                    continue
                yield line.removeprefix("$ ")
    for code in pages.inline(page):
        code = " ".join(code.split())
        if re.match(r"(fedbo|make|pytest|python|\.venv/bin/python) \S", code):
            yield code
    for code in re.findall(r"<!-- numbers: (.*?) -->", pages.text_of(page)):
        if not code.startswith("measured once"):
            yield code


def commands(line: str) -> list[list[str]]:
    """Split a line into its commands, without comments, surroundings and the file that the output goes to."""
    found: list[list[str]] = [[]]
    for word in shlex.split(line, comments=True):
        if word in ("&&", "||", ";", "|"):
            found.append([])
        else:
            found[-1].append(word)
    return [[word for word in _without_settings(words)] for words in found if words]


def _without_settings(words: list[str]) -> list[str]:
    first = next((n for n, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), len(words))
    last = words.index(">") if ">" in words else len(words)
    return words[first:last]


ALL = sorted({(page, line) for page in pages.NAMES for line in _lines(page)})


@pytest.mark.parametrize(("page", "line"), ALL, ids=[f"{page}: {line[:60]}" for page, line in ALL])
def test_a_command_line_could_be_given(page: str, line: str) -> None:
    for words in commands(line):
        check(words)


def check(words: list[str]) -> None:
    """Look at one command; AssertionError when it could not be given as it stands."""
    program = Path(words[0]).name
    if program == "fedbo":
        parse(words[1:])
    elif program == "make":
        targets = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        assert set(targets) <= TARGETS, f"no target {sorted(set(targets) - TARGETS)}"
    elif program == "pytest" or words[1:3] == ["-m", "pytest"]:
        _check_pytest(words[words.index("pytest") + 1 :] if "pytest" in words else words[1:])
    elif program.startswith("python") and words[1:2] and words[1].endswith(".py"):
        check_script(words[1], words[2:])
    elif program == "ray" and words[1:2] == ["exec"]:
        check(shlex.split(words[-1]))


def parse(words: list[str]) -> None:
    """Parse the arguments of `fedbo` by its own options, as far as values are not placeholders."""
    command = _command()
    context = command.make_context("fedbo", [], resilient_parsing=True)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"fedbo has no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
        context = command.make_context(command.name, [], parent=context, resilient_parsing=True)
    context.resilient_parsing = False  # else what is unknown would be passed over
    given, rest, order = command.make_parser(context).parse_args(args=list(words))
    assert not rest, f"fedbo takes no {rest}"
    if command.name == "plot" and (kind := given.get("kind")):
        assert kind in KINDS, f"there is no kind {kind}"
    for parameter in {one.name: one for one in order}.values():
        value = given.get(parameter.name)
        if value is not None:
            plain = [VALUES.get(each, each) for each in value] if isinstance(value, list) else VALUES.get(value, value)
            parameter.process_value(context, plain)


def check_script(path: str, arguments: list[str]) -> None:
    """Look whether a script is there and adds the options that it is given."""
    file = pages.ROOT / path
    assert file.exists(), f"no {path}"
    options = {
        word.value
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
        for word in node.args
        if isinstance(word, ast.Constant)
    }
    for word in arguments:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"{path} has no {word}"


def _check_pytest(words: list[str]) -> None:
    paths = [word.partition("::") for word in words if word.startswith("tests")]
    for path, _, test in paths:
        assert (pages.ROOT / path).exists(), f"no {path}"
        assert not test or f"def {test.partition('[')[0]}(" in (pages.ROOT / path).read_text(encoding="utf-8")
    chosen = words[words.index("-k") + 1] if "-k" in words else None
    texts = [file.read_text(encoding="utf-8") for path, _, _ in paths for file in _tests(pages.ROOT / path)]
    if chosen is not None and chosen.isidentifier():
        assert any(re.search(rf"def test_\w*{chosen}", text) for text in texts), f"-k {chosen} selects nothing"
    if "-m" in words and texts and words[words.index("-m") + 1].isidentifier():
        mark = words[words.index("-m") + 1]
        assert any(f"mark.{mark}" in text for text in texts), f"-m {mark} selects nothing"


def _tests(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


CONSOLE = [
    (block, command, told)
    for block in pages.blocks("console")
    for command, told in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE)
]


@pytest.mark.parametrize(("block", "command", "told"), CONSOLE, ids=[command for _, command, _ in CONSOLE])
def test_a_session_that_is_shown_says_what_the_page_says(
    block: pages.Block, command: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pages.ROOT)
    words = shlex.split(command)
    assert words[:2] == ["fedbo", "validate"], f"{block}: only what runs nothing is carried out here"
    main(words[1:])
    assert capsys.readouterr().err.strip() == told.strip()


VALIDATED = [line for block in pages.blocks("sh") for line in block.text.splitlines() if line.startswith("fedbo validate exam")]


@pytest.mark.parametrize("line", VALIDATED)
def test_a_change_of_an_example_that_is_shown_is_valid(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pages.ROOT)
    assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err


def test_the_table_of_make_targets_has_those_of_the_makefile() -> None:
    grid = next(grid for grid in pages.grids("CONTRIBUTING.md") if grid.rows[0] == ("command", "what it does"))
    named = {row[0].strip("`").partition(" ")[2] for row in grid.rows[1:]}
    inner = {"setup", "style", "with-ray", "clean"}
    assert named == TARGETS - inner


def test_every_command_is_in_one_group_of_the_help_with_a_sentence_and_an_example_that_parses() -> None:
    places = [(found.title, found.place) for found in declared().values()]
    assert len(set(places)) == len(places), "two commands have one place in the help"
    for name, found in declared().items():
        assert found.title in TITLES
        assert re.fullmatch(r"[A-Z].{,63}\.", found.sentence), found.sentence  # one line of 80 columns
        assert commands(found.example)[0][:2] == ["fedbo", name]
        check(commands(found.example)[0])


def test_help_has_a_short_option_and_nothing_edits_the_start_up_files_of_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-h"]) == 0
    assert "fedbo run first.toml" in capsys.readouterr().out
    assert main(["-h"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{title}:\n" in shown for title in TITLES) and "..." not in shown.partition("\n")[2]
    assert main(["--install-completion"]) == 2
