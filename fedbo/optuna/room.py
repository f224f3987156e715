"""The room of Optuna."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Suggest the parameters of a study of Optuna, and export runs as such studies.",
    tests=("optuna",),
    needs=("tuning",),
    functions={"export_to_optuna": "fedbo.optuna.export:export_to_optuna", "mirror": "fedbo.optuna.export:Mirror"},
)
