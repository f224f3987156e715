"""The room of studies at sites."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Carry out a study whose sites keep their objectives to themselves, over an authenticated network.",
    tests=("sites",),
    needs=("privacy",),
    commands={
        "serve": Command(
            "fedbo.sites.commands:serve",
            "Run studies at sites",
            1,
            "Run the coordinator of a study at sites.",
            "fedbo serve first.toml --listen 0.0.0.0:7443",
        ),
        "join": Command(
            "fedbo.sites.commands:join",
            "Run studies at sites",
            2,
            "Take part in a study as a site.",
            "fedbo join north/approval.json objective.py:accuracy",
        ),
        "site": Command(
            "fedbo.sites.commands:site",
            "Run studies at sites",
            3,
            "Create a site, accept its approval, rotate its key.",
            "fedbo site new north",
        ),
        "approve": Command(
            "fedbo.sites.commands:approve",
            "Run studies at sites",
            4,
            "Approve a site for a study.",
            "fedbo approve request.json --study first.toml --endpoint https://host:7443",
        ),
        "revoke": Command(
            "fedbo.sites.commands:revoke",
            "Run studies at sites",
            5,
            "Revoke the key of a site.",
            "fedbo revoke 2 --study first.toml",
        ),
        "preflight": Command(
            "fedbo.sites.commands:preflight",
            "Run studies at sites",
            6,
            "Check that a site can take part in a study.",
            "fedbo preflight north/approval.json objective.py:accuracy",
        ),
        "sent": Command(
            "fedbo.sites.commands:sent", "Run studies at sites", 7, "List every byte that left a site.", "fedbo sent north"
        ),
        "demo": Command(
            "fedbo.sites.demo:demo",
            "Run studies at sites",
            8,
            "Run a coordinator and five sites on this machine.",
            "fedbo demo sites",
        ),
    },
    names={
        "DocumentError": "fedbo.sites.errors:DocumentError",
        "PolicyError": "fedbo.sites.errors:PolicyError",
        "SignatureError": "fedbo.sites.errors:SignatureError",
        "SiteSummary": "fedbo.sites.work:SiteSummary",
        "SitesError": "fedbo.sites.errors:SitesError",
        "join": "fedbo.sites.functions:join",
        "serve": "fedbo.sites.functions:serve",
    },
    errors=("fedbo.sites.errors:SitesError",),
    tables={"sites": "fedbo.sites.study_table:SitesTable"},
)
