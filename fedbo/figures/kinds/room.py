"""The room of figures that a run can do without."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Figures of one kind each: sweeps, optima, disruptions, and how a search went.",
    tests=("figures/test_search_plots.py", "figures/test_sweep_plots.py"),
    functions={
        "disruption_panels": "fedbo.figures.kinds.disruptions:disruption_panels",
        "optima_panels": "fedbo.figures.kinds.optima:optima_panels",
        "search_panels": "fedbo.figures.kinds.search:search_panels",
        "sweep_panels": "fedbo.figures.kinds.sweep:sweep_panels",
    },
)
