"""A site's process that is killed at planned letters, and notes what it masks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fedbo.sites.join import join_study
from fedbo.sites.mask_messages import MaskStep
from fedbo.sites.mask_work import SiteMasks
from fedbo.sites.masks import SiteRound
from tests.sites.test_remote_sites import objectives

KILLED, NOTES = "killed", "masked.txt"


def take_part(approval: Path, agent: int, agents: int, plan: list[tuple[MaskStep, int]]) -> None:
    """Take part until the study has ended, or until the next planned kill."""
    _kill_at(approval.parent / KILLED, plan)
    _note(approval.parent / NOTES)
    join_study(approval, objectives("quadratic", 4, agents=agents, noise=0.01)[agent], patience=600.0)


def _kill_at(done: Path, plan: list[tuple[MaskStep, int]]) -> None:
    """Kill this process at the next planned letter, in that round or a later one; by `MASKED`, before its vector leaves."""
    begun = len(done.read_text().split()) if done.exists() else 0
    answered, masked = SiteMasks._answered, SiteMasks.mask
    if begun == len(plan):
        return
    kind, first = plan[begun]

    def die(number: int) -> None:
        with done.open("a") as file:
            file.write(f"{kind.name}:{number} ")
        os.kill(os.getpid(), signal.SIGKILL)

    def answers(self: SiteMasks, came: MaskStep, number: int, letter: bytes) -> bytes:
        if came is kind and number >= first and (came is MaskStep.OPENING or self._round is not None):
            die(number)
        return answered(self, came, number, letter)

    def masks(self: SiteMasks, step: int, vector: Any) -> Any:
        if kind is MaskStep.MASKED and self._round is not None and self._round.number >= first:
            die(self._round.number)
        return masked(self, step, vector)

    SiteMasks._answered, SiteMasks.mask = answers, masks  # type: ignore[method-assign]


def _note(path: Path) -> None:
    mask = SiteRound.mask

    def noted(self: SiteRound, vector: Any) -> bytes:
        with path.open("a") as file:
            file.write(f"{self.number} {vector.astype('<u8').tobytes().hex()}\n")
        return mask(self, vector)

    SiteRound.mask = noted  # type: ignore[method-assign]
