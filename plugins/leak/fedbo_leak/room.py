"""The room of `fedbo leak`, which `pyproject.toml` names as an entry point."""

from fedbo.settings.rooms import AnswerKind, Command, Room

ANSWER = AnswerKind("leak", "leak.json", "leaking.json", read="fedbo_leak.command:read", resume="fedbo_leak.command:resume")
ROOM = Room(
    sentence="Measure by attacks what the messages of a study betray.",
    commands={
        "leak": Command(
            "fedbo_leak.command:leak",
            "Analyse what-if questions",
            8,
            "Measure by attacks what messages betray.",
            "fedbo leak first.toml",
        )
    },
    names={"leak": "fedbo_leak.leak:leak", "Leak": "fedbo_leak.result:Leak"},
    functions={
        "listen": "fedbo_leak.listening:listen",
        "check_algorithm": "fedbo_leak.declarations:check_declaration",
        "list_column": "fedbo_leak.listed:measured_column",
    },
    answers=(ANSWER,),
)
