"""The room of `fedbo why`."""

from fedbo.settings.rooms import AnswerKind, Command, Room

ANSWER = AnswerKind(
    "answer", "why.json", "asked.json", read="fedbo.lab.why.command:read", resume="fedbo.lab.why.command:resume"
)
ROOM = Room(
    sentence="Ask when the bad end of a run was decided, and which luck it was.",
    tests=("lab/why",),
    needs=("lab/fork",),
    commands={
        "why": Command(
            "fedbo.lab.why.command:why",
            "Analyse what-if questions",
            2,
            "Ask when a bad end was decided, and by which luck.",
            'fedbo why runs/first --end "regret > 0.1"',
        )
    },
    names={"why": "fedbo.lab.why.why:why", "Why": "fedbo.lab.why.result:Why"},
    answers=(ANSWER,),
    sections={"Why it ended so": "fedbo.lab.why.figure:why_section"},
)
