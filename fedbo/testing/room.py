"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Check what authors of methods, problems and plug-ins promise.",
    tests=("algorithms/test_algorithm_contract.py", "objectives/test_objective_contract.py", "study/test_plugins.py"),
)
