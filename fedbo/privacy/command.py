"""The command `fedbo privacy`: the noise that an epsilon needs, or the epsilon of a noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.commands.arguments import Format, Printed, Sets, Trust, print_json
from fedbo.figures.reports.tables import console, plain, table_of
from fedbo.privacy.accounting import ACCOUNTANTS, multiplier_for
from fedbo.privacy.accounting import epsilon as epsilon_of
from fedbo.privacy.estimates import noise_needed
from fedbo.privacy.gaussian import PrivacyCharge
from fedbo.privacy.report import noise_table
from fedbo.study.study import load_study

_SMALL_DELTA = 1e-5
_ROUNDS, _MAX_ROUNDS = 60, 10**6


@dataclass(frozen=True, slots=True)
class Needed:
    """The result of one accountant: the noise multiplier, None if it finds none, and epsilon at each delta."""

    accountant: str
    noise: float | None
    epsilons: tuple[float | None, ...]


def privacy(
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget; compute the noise for it.")] = None,
    noise: Annotated[float | None, typer.Option(help="Noise multiplier z; compute its epsilon.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of the guarantee. Default: 1 / agents^1.1.", show_default=False)
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, max=_MAX_ROUNDS, help="Number of releases.", show_default="60")] = None,
    agents: Annotated[int | None, typer.Option(min=2, help="Number of agents; sets the default delta only.")] = None,
    q: Annotated[
        float | None, typer.Option("--q", help="Probability that a release includes an agent.", show_default="1")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="Study file; compute the noise for each of its private algorithms.")
    ] = None,
    sets: Sets = None,
    trust: Trust = False,
    printed: Printed = Format.text,
) -> None:
    """Compute the noise multiplier for an epsilon, or the epsilon of a noise multiplier, by three accountants.

    Neighbouring data sets differ by one agent, and all weights are equal. "moments" is the accountant of the
    paper (Dai et al. 2021), and "pld" is the tightest. Each is an upper bound.

    With --study the computation uses the study's exchange mode, sampling and weights, for one run.
    """
    if study is not None:
        for name, value in {"--noise": noise, "--rounds": rounds, "--agents": agents, "--q": q}.items():
            if value is not None:
                raise typer.BadParameter(f"{name} cannot be combined with --study, which sets it; remove it")
        _of_study(study, epsilon, delta, sets or [], trust, printed)
        return
    if sets:
        raise typer.BadParameter("--set requires --study; add --study")
    rounds, q = rounds or _ROUNDS, 1.0 if q is None else q
    _check(epsilon, noise, q)
    deltas = _deltas(delta, agents)
    rows = [_ask(name, epsilon, noise, deltas, rounds, q) for name in ACCOUNTANTS]
    if printed is Format.json:
        print_json(_facts(rows, deltas, rounds, q))
        return
    console().print(_table(rows, deltas, rounds, q, epsilon))


def _of_study(path: Path, epsilon: float | None, delta: float | None, sets: list[str], trust: bool, printed: Format) -> None:
    """Print the noise that each private algorithm of a study needs."""
    if epsilon is None:
        raise typer.BadParameter(
            "--study requires --epsilon; add it, or run fedbo validate for the epsilon of the study's noise"
        )
    _check(epsilon, None, 1.0)
    if delta is not None:
        _check_delta(delta)
    found = noise_needed(load_study(path, sets, trust), epsilon, delta)
    if not found:
        raise typer.BadParameter(
            f"--study: no algorithm of '{path}' adds central noise; use one that does, for example dp_fts_de"
        )
    if printed is Format.json:
        print_json({"epsilon": epsilon, "algorithms": plain(found)})
        return
    console().print(noise_table(found, epsilon))


def _check(epsilon: float | None, noise: float | None, q: float) -> None:
    if (epsilon is None) == (noise is None):
        given = "neither" if epsilon is None else f"--epsilon {epsilon:g} and --noise {noise:g}"
        raise typer.BadParameter(f"set exactly one of --epsilon and --noise, not {given}")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise typer.BadParameter(f"--epsilon must be greater than 0 and finite, not {epsilon:g}; try 2")
    if noise is not None and not 0 < noise < math.inf:
        raise typer.BadParameter(f"--noise must be greater than 0 and finite, not {noise:g}; try 1")
    if not 0 < q <= 1:
        raise typer.BadParameter(f"--q must be in (0, 1], not {q:g}; 1 means no sampling")


def _deltas(delta: float | None, agents: int | None) -> tuple[float, ...]:
    """Return the requested delta, and a small one as well if that is large."""
    if delta is None and agents is None:
        raise typer.BadParameter("set --delta, or set --agents for the default of 1 / agents^1.1")
    chosen = float(agents or 0) ** -1.1 if delta is None else delta
    _check_delta(chosen)
    return (chosen, _SMALL_DELTA) if chosen > _SMALL_DELTA else (chosen,)


def _check_delta(delta: float) -> None:
    if not 1e-9 <= delta <= 0.5:
        raise typer.BadParameter(f"--delta must be between 1e-09 and 0.5, not {delta:g}; try 1e-5")


def _ask(name: str, epsilon: float | None, noise: float | None, deltas: tuple[float, ...], rounds: int, q: float) -> Needed:
    if epsilon is not None:
        try:
            noise = multiplier_for(epsilon, deltas[0], rounds, q, name)
        except ValueError:  # all else that it refuses was checked before
            return Needed(name, None, (None,) * len(deltas))
    assert noise is not None
    return Needed(name, noise, tuple(epsilon_of({PrivacyCharge(q, noise): rounds}, delta, name) for delta in deltas))


def _facts(rows: list[Needed], deltas: tuple[float, ...], rounds: int, q: float) -> dict[str, Any]:
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
    headings = ("accountant", "noise multiplier", *(f"epsilon at delta {delta:.3g}" for delta in deltas))
    lines = [(row.accountant, _number(row.noise), *(_number(found) for found in row.epsilons)) for row in rows]
    said = f"{rounds} releases; each includes an agent with probability {q:g}"
    if any(row.noise is None for row in rows):
        said += f"; –: this accountant cannot reach epsilon {wanted:g} at delta {deltas[0]:.3g} with any noise"
    return Group(table_of("", headings, lines), Text(said, style="dim"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
