"""The command `fedbo privacy`: the noise that an epsilon needs, or the epsilon of a noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbo.commands.arguments import Format, Printed, Sets, Trust, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_SMALL_DELTA = 1e-5
_ROUNDS, _MAX_ROUNDS = 60, 10**6


@dataclass(frozen=True, slots=True)
class Needed:
    """The result of one accountant: the noise multiplier, None if it finds none, and epsilon at each delta."""

    accountant: str
    noise: float | None
    epsilons: tuple[float | None, ...]


def privacy(
    epsilon: Annotated[float | None, typer.Option(help="How much may be lost; the noise for it is sought.")] = None,
    noise: Annotated[float | None, typer.Option(help="The noise multiplier z; the epsilon of it is sought.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta; default: 1 / agents^1.1.", show_default=False)] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=_MAX_ROUNDS, help="How many releases there will be.", show_default="60")
    ] = None,
    agents: Annotated[int | None, typer.Option(min=2, help="How many agents there are; only for the default delta.")] = None,
    q: Annotated[
        float | None, typer.Option("--q", help="With which probability an agent is in a release.", show_default="1")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="A study file: the noise that each of its private algorithms needs.")
    ] = None,
    sets: Sets = None,
    trust: Trust = False,
    printed: Printed = Format.text,
) -> None:
    """Say how much noise an epsilon needs, or which epsilon a noise gives, by three accountants.

    One agent's contribution is weighed against its absence, with all weights alike. "moments" is the accountant of the
    paper (Dai et al. 2021), and "pld" the tightest. Each is an upper bound.

    With --study the noise is that of one run of the study, with its exchange mode, its sampling and its weights.
    """
    if study is not None:
        _refuse_beside_study({"--noise": noise, "--rounds": rounds, "--agents": agents, "--q": q})
        _of_study(study, epsilon, delta, sets or [], trust, printed)
        return
    if sets:
        raise typer.BadParameter("--set changes a study; set --study too")
    rounds, q = rounds or _ROUNDS, 1.0 if q is None else q
    _check(epsilon, noise, q)
    deltas = _deltas(delta, agents)
    rows = [_ask(name, epsilon, noise, deltas, rounds, q) for name in _accountants()]
    if printed is Format.json:
        print_json(_facts(rows, deltas, rounds, q))
        return
    from fedbo.figures.reports.tables import console

    console().print(_table(rows, deltas, rounds, q, epsilon))


def _refuse_beside_study(values: Mapping[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None:
            raise typer.BadParameter(f"{name} has no effect with --study, which has its own; leave it out")


def _of_study(path: Path, epsilon: float | None, delta: float | None, sets: list[str], trust: bool, printed: Format) -> None:
    """Print the noise that each private algorithm of a study needs."""
    from fedbo.analysis.estimates.privacy import noise_needed
    from fedbo.figures.reports.privacy import noise_table
    from fedbo.figures.reports.tables import console, plain
    from fedbo.study.study import load_study

    if epsilon is None:
        raise typer.BadParameter("--study needs --epsilon; fedbo validate has the epsilon of the noise in the study")
    _check(epsilon, None, 1.0)
    if delta is not None:
        _check_delta(delta)
    found = noise_needed(load_study(path, sets, trust), epsilon, delta)
    if not found:
        raise typer.BadParameter(f"--study: no algorithm of '{path}' adds central noise, such as dp_fts_de does")
    if printed is Format.json:
        print_json({"epsilon": epsilon, "algorithms": plain(found)})
        return
    console().print(noise_table(found, epsilon))


def _check(epsilon: float | None, noise: float | None, q: float) -> None:
    if (epsilon is None) == (noise is None):
        given = "neither" if epsilon is None else f"--epsilon {epsilon:g} and --noise {noise:g}"
        raise typer.BadParameter(f"give --epsilon or --noise, one of them, not {given}")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise typer.BadParameter(f"--epsilon must be greater than 0 and finite, not {epsilon:g}; try 2")
    if noise is not None and not 0 < noise < math.inf:
        raise typer.BadParameter(f"--noise must be greater than 0 and finite, not {noise:g}; try 1")
    if not 0 < q <= 1:
        raise typer.BadParameter(f"--q must be in (0, 1], not {q:g}; 1 is without sampling")


def _deltas(delta: float | None, agents: int | None) -> tuple[float, ...]:
    """Give the delta asked for, and beside a weak one a strong one."""
    if delta is None and agents is None:
        raise typer.BadParameter("give --delta, or --agents for the default of 1 / agents^1.1")
    chosen = float(agents or 0) ** -1.1 if delta is None else delta
    _check_delta(chosen)
    return (chosen, _SMALL_DELTA) if chosen > _SMALL_DELTA else (chosen,)


def _check_delta(delta: float) -> None:
    if not 1e-9 <= delta <= 0.5:
        raise typer.BadParameter(f"--delta must be between 1e-09 and 0.5, not {delta:g}; try 1e-5")


def _accountants() -> tuple[str, ...]:
    from fedbo.coordinator.privacy.accounting import ACCOUNTANTS

    return ACCOUNTANTS


def _ask(name: str, epsilon: float | None, noise: float | None, deltas: tuple[float, ...], rounds: int, q: float) -> Needed:
    from fedbo.coordinator.privacy.accounting import epsilon as epsilon_of
    from fedbo.coordinator.privacy.accounting import multiplier_for
    from fedbo.coordinator.privacy.charge import PrivacyCharge

    if epsilon is not None:
        try:
            noise = multiplier_for(epsilon, deltas[0], rounds, q, name)
        except ValueError:  # all else that it refuses was checked before
            return Needed(name, None, (None,) * len(deltas))
    assert noise is not None
    return Needed(name, noise, tuple(epsilon_of({PrivacyCharge(q, noise): rounds}, delta, name) for delta in deltas))


def _facts(rows: list[Needed], deltas: tuple[float, ...], rounds: int, q: float) -> dict[str, Any]:
    from fedbo.figures.reports.tables import plain

    said = [
        {
            "accountant": row.accountant,
            "noise": row.noise,
            "epsilons": [{"delta": delta, "epsilon": found} for delta, found in zip(deltas, row.epsilons, strict=True)],
        }
        for row in rows
    ]
    facts: dict[str, Any] = plain({"rounds": rounds, "q": q, "accountants": said})
    return facts


def _table(rows: list[Needed], deltas: tuple[float, ...], rounds: int, q: float, wanted: float | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from fedbo.figures.reports.tables import table_of

    headings = ("accountant", "noise multiplier", *(f"epsilon at delta {delta:.3g}" for delta in deltas))
    lines = [(row.accountant, _number(row.noise), *(_number(found) for found in row.epsilons)) for row in rows]
    said = f"{rounds} releases, each with an agent in it with probability {q:g}"
    if any(row.noise is None for row in rows):
        said += f"; –: no noise makes this accountant show epsilon {wanted:g} at delta {deltas[0]:.3g}"
    return Group(table_of("", headings, lines), Text(said, style="dim"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
