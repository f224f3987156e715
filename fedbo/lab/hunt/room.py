"""The room of `fedbo hunt`."""

from fedbo.settings.rooms import AnswerKind, Command, Room

ANSWER = AnswerKind(
    "hunt", "hunt.json", "hunted.json", read="fedbo.lab.hunt.command:read", resume="fedbo.lab.hunt.command:resume"
)
ROOM = Room(
    sentence="Find the smallest world in which a claim about a method fails.",
    tests=("lab/hunt",),
    needs=("lab/why",),
    commands={
        "hunt": Command(
            "fedbo.lab.hunt.command:hunt",
            "Analyse what-if questions",
            3,
            "Find the smallest world in which a claim fails.",
            'fedbo hunt first.toml --claim "fts is not worse than random"',
        ),
    },
    names={"hunt": "fedbo.lab.hunt.hunt:hunt", "Hunt": "fedbo.lab.hunt.result:Hunt"},
    answers=(ANSWER,),
)
