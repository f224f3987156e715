"""The room of the HTML report."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Write one HTML page about one or several runs, also while they run.",
    tests=("figures/page",),
    commands={
        "report": Command(
            "fedbo.figures.page.command:report",
            "Inspect runs",
            4,
            "Write one HTML page about one or several runs.",
            "fedbo report runs/first",
        )
    },
    names={"ReportError": "fedbo.figures.page.page:ReportError", "report": "fedbo.figures.page.page:report"},
    errors=("fedbo.figures.page.page:ReportError",),
    functions={"report": "fedbo.figures.page.page:render_page", "write_report": "fedbo.figures.page.page:write_report"},
)
