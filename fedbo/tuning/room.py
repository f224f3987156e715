"""The room of `fedbo.tune` and of ask and tell."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Tune a function at several sites in real time, or by ask and tell.",
    tests=("tuning",),
    needs=("sites", "stopping"),
    names={
        "Agent": "fedbo.tuning.ask_tell:Agent",
        "FedboSearchCV": "fedbo.tuning.search_cv:FedboSearchCV",
        "Meeting": "fedbo.tuning.message_folder:Meeting",
        "Terms": "fedbo.tuning.terms:Terms",
        "tune": "fedbo.tuning.tune:tune",
    },
)
