"""Drawn faults: they have the settings of their class, also those of a class that is added."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pytest

from fedbo.coordinator.environment.faults import FAULTS, MESSAGE_FAULTS
from fedbo_hunt import surroundings
from fedbo_hunt.surroundings import Draws


@dataclass(frozen=True)
class Whisper:
    """A fault of messages without a probability and a direction."""

    kind: ClassVar[str] = "whisper"
    agents: Any = "all"
    start: float = 0.0
    end: float | None = None


def test_a_drawn_fault_has_only_settings_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "FAULTS", {**FAULTS, "whisper": Whisper})
    monkeypatch.setattr(surroundings, "MESSAGE_FAULTS", (*MESSAGE_FAULTS, Whisper))
    seen = set()
    for seed in range(200):
        table = surroundings.draw_fault(Draws(np.random.default_rng(seed)), [0, 1], [])
        settings = {field.name for field in fields({**FAULTS, "whisper": Whisper}[table["kind"]])}
        assert table.keys() <= {"kind", *settings}
        seen.add(table["kind"])
    assert seen == {*FAULTS, "whisper"} - {"preemption"}
