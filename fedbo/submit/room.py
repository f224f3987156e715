"""The room of `fedbo submit`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Run a study in jobs that end before it does, under SLURM or here.",
    tests=("submit",),
    commands={
        "submit": Command(
            "fedbo.submit.command:submit",
            "Run studies",
            7,
            "Run a study in jobs that end before it does.",
            "fedbo submit first.toml --to slurm --walltime 10:00",
        ),
        "job": Command(
            "fedbo.submit.command:job",
            "Run studies",
            8,
            "Do one job of a submitted study; its script calls this.",
            "fedbo job runs/first.jobs/study.toml runs/first",
        ),
    },
)
