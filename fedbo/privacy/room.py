"""The room of private messages, of `fedbo privacy`, and of the table [privacy]."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Release noisy sums of private messages, account for them, and mask messages.",
    tests=("privacy", "execution/test_private_noise.py", "execution/test_private_runs.py", "testing/test_private_studies.py"),
    commands={
        "privacy": Command(
            "fedbo.privacy.command:privacy",
            "Analyse what-if questions",
            7,
            "Compute noise from epsilon, or epsilon from noise.",
            "fedbo privacy --epsilon 2 --rounds 60",
        )
    },
    functions={
        "estimate_lines": "fedbo.privacy.report:estimate_lines",
        "export_public": "fedbo.privacy.public_export:export_public",
        "is_private": "fedbo.privacy.public_export:is_private",
        "ledger_table": "fedbo.privacy.ledger:table_of",
        "ledger_tables": "fedbo.privacy.summary:ledger_tables",
        "mask_bytes": "fedbo.privacy.estimates:mask_bytes",
        "noise_key": "fedbo.privacy.budget:noise_key",
        "privacy_budget": "fedbo.privacy.budget:budget_of",
        "privacy_estimates": "fedbo.privacy.estimates:privacy_estimates",
        "privacy_facts": "fedbo.privacy.report:privacy_facts",
        "privacy_panels": "fedbo.privacy.figure:privacy_panels",
        "privacy_section": "fedbo.privacy.report:privacy_section",
        "privacy_table": "fedbo.privacy.report:privacy_table",
        "private_receipt": "fedbo.privacy.receipt:PrivateReceipt",
        "receipt": "fedbo.privacy.receipt:receipt_of",
        "total_estimate": "fedbo.privacy.estimates:total_estimate",
    },
    analyses={"spending": "fedbo.privacy.summary:spending", "spending_together": "fedbo.privacy.summary:spending_together"},
    schemas={"privacy": "fedbo.privacy.ledger:PRIVACY", "privacy_agents": "fedbo.privacy.ledger:SPENT"},
    tables={"privacy": "fedbo.privacy.study_table:PrivacyTable"},
)
