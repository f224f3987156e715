"""The room of `fedbo fork`."""

from fedbo.settings.rooms import AnswerKind, Command, Room

ANSWER = AnswerKind(
    "fork", "fork.json", "begun.json", read="fedbo.lab.fork.command:read", resume="fedbo.lab.fork.command:resume"
)
ROOM = Room(
    sentence="Continue a finished run from one moment with a change, with the same random draws.",
    tests=("lab/fork",),
    commands={
        "fork": Command(
            "fedbo.lab.fork.command:fork",
            "Analyse what-if questions",
            1,
            "Change something at one moment of a finished run.",
            "fedbo fork runs/first --at 12.5 --set budget.iterations=30",
        )
    },
    names={"fork": "fedbo.lab.fork.fork:fork", "Fork": "fedbo.lab.fork.result:Fork"},
    answers=(ANSWER,),
)
