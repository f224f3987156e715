"""The room of `fedbo hunt`, which `pyproject.toml` names as an entry point."""

from fedbo.settings.rooms import AnswerKind, Command, Room

ANSWER = AnswerKind("hunt", "hunt.json", "hunted.json", read="fedbo_hunt.command:read", resume="fedbo_hunt.command:resume")
ROOM = Room(
    sentence="Find the smallest world in which a claim about a method fails.",
    needs=("lab/why",),
    commands={
        "hunt": Command(
            "fedbo_hunt.command:hunt",
            "Analyse what-if questions",
            3,
            "Find the smallest world in which a claim fails.",
            'fedbo hunt first.toml --claim "fts is not worse than random"',
        )
    },
    names={"hunt": "fedbo_hunt.hunt:hunt", "Hunt": "fedbo_hunt.result:Hunt"},
    answers=(ANSWER,),
)
