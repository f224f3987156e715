"""The room of `fedbo bench`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Compare methods on every task of a suite.",
    tests=("lab/benchmarking",),
    commands={
        "bench": Command(
            "fedbo.lab.benchmarking.command:bench",
            "Run studies",
            3,
            "Compare methods on every task of a suite.",
            "fedbo bench suite --quick --algorithms gp_ei,fts",
        )
    },
    names={"bench": "fedbo.lab.benchmarking.benchmark:bench"},
    functions={
        "statistics_section": "fedbo.lab.benchmarking.ranks:statistics_section",
        "suites": "fedbo.lab.benchmarking.suites:suites",
    },
)
