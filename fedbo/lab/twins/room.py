"""The room of `fedbo fit`, `fedbo twin` and `fedbo validate --time`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Fit a world to a run or a log, predict changes, forecast times.",
    tests=("lab/twins",),
    commands={
        "fit": Command(
            "fedbo.lab.twins.command:fit",
            "Analyse what-if questions",
            5,
            "Fit durations, delays and losses to a run or a log.",
            "fedbo fit runs/first",
        ),
        "twin": Command(
            "fedbo.lab.twins.command:twin",
            "Analyse what-if questions",
            6,
            "Rebuild a run from its fit and predict changes.",
            "fedbo twin runs/first --set exchange.mode=immediate",
        ),
    },
    names={
        "MeasurementError": "fedbo.lab.twins.measurements:MeasurementError",
        "fit": "fedbo.lab.twins.functions:fit",
        "twin": "fedbo.lab.twins.functions:twin",
    },
    errors=("fedbo.lab.twins.measurements:MeasurementError",),
    functions={"forecast": "fedbo.lab.twins.forecasts:forecast", "forecast_line": "fedbo.lab.twins.forecasts:forecast_line"},
)
