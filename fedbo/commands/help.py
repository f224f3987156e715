"""The help of the command line: commands in groups, one sentence and one example for each."""

from __future__ import annotations

from typing import Any, NamedTuple

from typer.core import TyperGroup


class CommandHelp(NamedTuple):
    """The help of one command: a sentence for the list of commands, and an example for its own page."""

    sentence: str
    example: str


# The sentences fit into one line of a terminal with 80 columns.
GROUPS: dict[str, dict[str, CommandHelp]] = {
    "Run studies": {
        "run": CommandHelp("Run a study and print its summary.", "fedbo run first.toml --set budget.iterations=20"),
        "resume": CommandHelp("Resume an interrupted run, or extend a finished one.", "fedbo resume runs/first"),
        "bench": CommandHelp("Compare methods on every task of a suite.", "fedbo bench suite --quick --algorithms gp_ei,fts"),
        "worth": CommandHelp("Estimate whether federation pays in a study.", "fedbo worth first.toml"),
        "reproduce": CommandHelp("Reproduce the figures and statements of a paper.", "fedbo reproduce fts --quick"),
        "tabulate": CommandHelp("Evaluate a slow objective once, for fast studies.", "fedbo tabulate landmine --points 200"),
    },
    "Run studies at sites": {
        "serve": CommandHelp("Run the coordinator of a study at sites.", "fedbo serve first.toml --listen 0.0.0.0:7443"),
        "join": CommandHelp("Take part in a study as a site.", "fedbo join north/approval.json objective.py:accuracy"),
        "site": CommandHelp("Create a site, accept its approval, rotate its key.", "fedbo site new north"),
        "approve": CommandHelp(
            "Approve a site for a study.", "fedbo approve request.json --study first.toml --endpoint https://host:7443"
        ),
        "revoke": CommandHelp("Revoke the key of a site.", "fedbo revoke 2 --study first.toml"),
        "preflight": CommandHelp(
            "Check that a site can take part in a study.", "fedbo preflight north/approval.json objective.py:accuracy"
        ),
        "sent": CommandHelp("List every byte that left a site.", "fedbo sent north"),
        "demo": CommandHelp("Run a coordinator and five sites on this machine.", "fedbo demo sites"),
    },
    "Inspect runs": {
        "show": CommandHelp("Print the summary of a run.", "fedbo show runs/first --trouble"),
        "compare": CommandHelp("Print several runs side by side.", "fedbo compare runs/first runs/second"),
        "plot": CommandHelp("Draw a figure of a run.", "fedbo plot runs/first --kind timeline --out timeline.pdf"),
        "report": CommandHelp("Write one HTML page about one or several runs.", "fedbo report runs/first"),
        "watch": CommandHelp("Show a run in progress.", "fedbo watch runs/first"),
        "export": CommandHelp("Export the evaluations of a run to other tools.", "fedbo export runs/first --to optuna"),
    },
    "Analyse what-if questions": {
        "fork": CommandHelp(
            "Change something at one moment of a finished run.", "fedbo fork runs/first --at 12.5 --set budget.iterations=30"
        ),
        "why": CommandHelp("Ask when a bad end was decided, and by which luck.", 'fedbo why runs/first --end "regret > 0.1"'),
        "hunt": CommandHelp(
            "Find the smallest world in which a claim fails.", 'fedbo hunt first.toml --claim "fts is not worse than random"'
        ),
        "replay": CommandHelp("Repeat a run and check that its results are the same.", "fedbo replay runs/first --verify"),
        "fit": CommandHelp("Fit durations, delays and losses to a run or a log.", "fedbo fit runs/first"),
        "twin": CommandHelp(
            "Rebuild a run from its fit and predict changes.", "fedbo twin runs/first --set exchange.mode=immediate"
        ),
        "privacy": CommandHelp("Compute noise from epsilon, or epsilon from noise.", "fedbo privacy --epsilon 2 --rounds 60"),
    },
    "Write studies and plug-ins": {
        "new": CommandHelp("Write a small example: a study or your own method.", "fedbo new study first"),
        "examples": CommandHelp("List or copy the studies that come with fedbo.", "fedbo examples digits"),
        "validate": CommandHelp("Check a study and estimate its cost.", "fedbo validate first.toml --time"),
        "schema": CommandHelp("Print the JSON Schema of study files, for editors.", "fedbo schema > study.schema.json"),
    },
    "Look up names and data": {
        "list": CommandHelp("List methods, objectives, models and their settings.", "fedbo list algorithms"),
        "data": CommandHelp("List and fetch public data sets.", "fedbo data fetch landmine"),
        "doctor": CommandHelp("Check the installation.", "fedbo doctor"),
    },
}


def help_of(name: str, codes: str) -> dict[str, Any]:
    """Return the keyword arguments for a command's help; `codes` explains the exit codes."""
    (found,) = (group[name] for group in GROUPS.values() if name in group)
    # \b keeps the lines of a paragraph as they are.
    return {"short_help": found.sentence, "epilog": f"\b\nExample:\n  {found.example}\n\n{codes}"}


class GroupedCommands(TyperGroup):
    """The command `fedbo`, whose help lists its commands in groups with whole sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(9), found.sentence) for name, found in commands.items()])
