"""The command `fedbo`: validate, run, resume, inspect and replay studies."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from typing import Annotated, Any

import typer

from fedbo.commands.arguments import CODES, FAILED, INTERRUPTED, OK, WRONG_INPUT, Stop, restore_stdout
from fedbo.commands.help import GroupedCommands
from fedbo.settings.shown import OutputError, ShownStream, quoted

app = typer.Typer(
    name="fedbo",
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Simulate and run federated black-box optimisation, on Ray.",
    epilog=f"Begin with: fedbo new study first, then fedbo run first.toml.\n\n{CODES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _fedbo(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from fedbo.settings.version import fedbo_version

        print(f"fedbo {fedbo_version()}")
        raise Stop(OK)


@cache
def _command() -> Any:
    """Return the command with the options of all functions. It is cached, since reading them takes longer than parsing."""
    command = typer.main.get_command(app)
    # Typer's --install-completion edits the start-up file of the shell; --show-completion prints what belongs there.
    command.params = [option for option in command.params if option.name != "install_completion"]
    return command


def _open_streams() -> None:
    """Open the null device for each standard stream that is closed, as `fedbo run … >&-` and some schedulers close it.

    Otherwise the next file of a run would get its number, and what a program prints would be written into that file.
    """
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on standard error. All output passes through `shown`."""
    _open_streams()
    with redirect_stdout(ShownStream(sys.stdout)), redirect_stderr(ShownStream(sys.stderr)):
        try:
            code = _main(arguments)
            sys.stdout.flush()  # else what is left fails as the process ends
            return code
        except (OutputError, BrokenPipeError) as error:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED if isinstance(error, BrokenPipeError) else _complain(str(error), FAILED)
        finally:
            restore_stdout()


def _main(arguments: Sequence[str] | None) -> int:
    if arguments is None:  # the process ends with this command, and need not spend a tenth of a second on its garbage then
        atexit.register(gc.freeze)
    try:
        code = _command()(args=None if arguments is None else list(arguments), prog_name="fedbo", standalone_mode=False)
    except Stop as stop:
        return stop.code
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except (OutputError, BrokenPipeError):
        raise
    except Exception as error:
        return _expected(error)
    except SystemExit as error:
        return _exited(error)
    if code == INTERRUPTED:  # typer makes this of a KeyboardInterrupt
        return _complain("interrupted", INTERRUPTED)
    return OK


def _expected(error: Exception) -> int:
    """Print an error that users can fix and return its exit code; raise any other error, which is a bug of fedbo."""
    if hasattr(error, "format_message"):  # typer's own: wrong usage
        command = getattr(getattr(error, "ctx", None), "command_path", "fedbo")
        if hasattr(error, "message") and (
            found := getattr(error.__cause__, "errors", None)
        ):  # pydantic's, by which typer reads
            error.message = _value_words(found()[0])
        usage = " ".join(error.format_message().split()).rstrip(".")
        return _complain(f"{usage}; see {command} --help", WRONG_INPUT)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", OK))
    from fedbo.commands.errors import is_failure, is_wrong_input, system_words

    if is_wrong_input(error):
        return _complain(str(error), WRONG_INPUT)
    if is_failure(error):
        return _complain(f"{error}{_kept(error)}", FAILED)
    from fedbo.settings.own_code import code_words

    if (words := code_words(error) or system_words(error)) is not None:
        return _complain(words, FAILED)
    raise error


def _value_words(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value of the command line, in the words of a study's errors."""
    from fedbo.study.invalid import remedy_of

    return ("" if item["type"] == "value_error" else f"{item['input']!r} ") + remedy_of(item, (), {})


def _exited(error: SystemExit) -> int:
    """Report external code that called sys.exit, for instance when it was imported; the command line itself may exit."""
    from fedbo.settings.own_code import ends_process, exit_words

    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if ends_process(error) or str(frame.f_globals.get("__name__")).partition(".")[0] in ("click", "typer", "fedbo"):
        raise error
    return _complain(exit_words(error), FAILED)


def _kept(error: Exception) -> str:
    """Return a note of where a failed run's results are, unless the error contains it."""
    directory = str(getattr(error, "directory", ""))
    if not directory or directory in str(error):
        return ""
    from fedbo.coordinator.errors import EndlessError

    again = "" if isinstance(error.__cause__, EndlessError) else f"; continue with: fedbo resume {quoted(directory)}"
    return f"; partial results are in {directory}{again}"


def _complain(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
