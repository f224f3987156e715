"""The room of idle agents that have no events."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Find out late what happened to idle agents, with equal observations and far fewer events.",
    tests=("coordinator/test_sleeping_agents.py",),
    functions={"idle_agents": "fedbo.coordinator.idle.sleeping:SleepingAgents"},
)
