"""Fractional vaccine doses: the published results, an independent solution, and countries that disagree."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit

from fedbo.algorithms.streams import Streams
from fedbo.objectives.applications.epidemic import DELAY, EPIDEMICS, FATALITY, IMMUNE, OFFERED, WILLING, outcomes, vaccinated
from fedbo.objectives.applications.vaccine import Campaign, Country, Vaccine, contacts, populations, protection, uninfected
from fedbo.objectives.base import Array
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.data import DataMissingError, inventory, locate

NO_DATA = not any(row.name == "covid" and row.state == "found" for row in inventory())
needs_data = pytest.mark.skipif(NO_DATA, reason="the data set covid is not here: see `fedbo data list`")

NAMES = {"Fast-growth epidemic": "fast", "Slow-growth epidemic": "slow", "Slow-decrease epidemic": "declining"}
DOSES = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])


def published() -> dict[str, list[dict[str, str]]]:
    """Give the rows of the published results by the name of the epidemic."""
    path = locate("covid") / "reference_results.csv"
    if not path.is_file():
        pytest.skip("reference_results.csv is not beside the data set covid")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {own: [row for row in rows if row["model"] == name] for name, own in NAMES.items()}


def pyramid(location: str) -> Array:
    """Give the age shares `(9,)` of any row of the table, also of a group of countries."""
    with (locate("covid") / "population_by_age_2020.csv").open(encoding="utf-8", newline="") as file:
        (people,) = (np.array(row[2:], dtype=float) for row in csv.reader(file) if row[1] == location)
    return np.asarray(people / people.sum())


def errors(rows: list[dict[str, str]], epidemic: str) -> tuple[Array, Array]:
    """Give how far our infections and deaths `(n,)` are from the published ones."""
    days, efficacy, infected, died = (np.array([float(row[key]) for row in rows]) for key in ("d1", "e", "i", "d"))
    people = np.tile(pyramid("High-income countries"), (len(rows), 1))
    ours = outcomes(people, days, efficacy, contacts(), EPIDEMICS[epidemic])
    return np.abs(ours[0] - infected), np.abs(ours[1] - died)


@pytest.mark.long
@needs_data
def test_thirty_of_the_published_results_are_met() -> None:
    """Ten of each epidemic, at every kind of speed, nobody vaccinated among them, and at every efficacy."""
    for epidemic, rows in published().items():
        ordered = sorted(rows, key=lambda row: (float(row["e"]), float(row["d1"])))
        infected, died = errors(ordered[::41], epidemic)
        assert len(infected) == 10
        assert infected.max() < 1e-5 and died.max() < 1e-7


@needs_data
@pytest.mark.long
def test_all_published_results_are_met() -> None:
    found = {epidemic: errors(rows, epidemic) for epidemic, rows in published().items()}
    infected, died = (np.concatenate([each[k] for each in found.values()]) for k in (0, 1))
    assert len(infected) == 1170
    assert (infected < 1e-5).all() and (died < 1e-7).all()


def plainly(people: Array, days: float, efficacy: float, epidemic: str) -> float:
    """Give the infected share by SciPy's LSODA on the published equations, term by term, for one population."""
    growth, carriers = EPIDEMICS[epidemic].growth, EPIDEMICS[epidemic].carriers
    radius = np.abs(np.linalg.eigvals(np.diag(1.0 - IMMUNE) @ contacts())).max()
    rate = growth / (5.0 * radius) * contacts()
    start = DELAY + np.array([days * people[g + 1 :].sum() * WILLING * (1.0 + 1e-5) for g in range(9)])
    pace = OFFERED / (days * people)

    def slope(t: float, y: Array) -> Array:
        s, e, i, r, _, _, n, c, _ = y.reshape(9, 9)
        force = rate @ i
        given = pace * expit(t - start) * expit(1000.0 * (WILLING - c))
        caught, ill, over = force * (s + n), 0.2 * e, 0.2 * i
        return np.concatenate([
            -force * s - given * s / (s + r), caught - ill, ill - over, (1.0 - FATALITY) * over - given * r / (s + r),
            FATALITY * over, given * (efficacy * s + r) / (s + r), given * (1.0 - efficacy) * s / (s + r) - force * n,
            given, ill,
        ])  # fmt: skip

    begun = (1.0 - IMMUNE) * carriers / 2.0
    zero = np.zeros(9)
    y0 = np.concatenate([1.0 - IMMUNE - begun, begun, begun, IMMUNE, zero, zero, zero, zero, zero])
    made = solve_ivp(slope, (1.0, 360.0), y0, method="LSODA", rtol=1e-7, atol=1e-9, max_step=1.0)
    return float(people @ made.y[-9:, -1])


@needs_data
@pytest.mark.parametrize(
    ("country", "dose"),
    [("Nigeria", 0.05), *(pytest.param(*one, marks=pytest.mark.long) for one in (("Japan", 0.11), ("Brazil", 0.6)))],
)
def test_a_countrys_infections_are_those_of_another_method_on_the_published_equations(country: str, dose: float) -> None:
    campaign = Campaign("fast", 400.0, 0.95, 0.438)
    efficacy = float(protection(0.95, np.array([dose**0.438]))[0])
    ours = 1.0 - uninfected(campaign, pyramid(country)[None], np.array([dose]))[0]
    assert ours == pytest.approx(plainly(pyramid(country), 400.0 * dose, efficacy, "fast"), abs=2e-5)


@needs_data
def test_the_share_that_is_vaccinated_solves_its_own_equation() -> None:
    people, days = pyramid("High-income countries"), 200.0
    start = DELAY + np.array([days * people[g + 1 :].sum() * WILLING * (1.0 + 1e-5) for g in range(9)])

    def slope(t: float, c: Array) -> Array:
        return np.asarray(OFFERED / (days * people) * expit(t - start) * expit(1000.0 * (WILLING - c)))

    time = np.linspace(1.0, 360.0, 37)
    made = solve_ivp(slope, (1.0, 360.0), np.zeros(9), method="LSODA", rtol=1e-10, atol=1e-12, t_eval=time, max_step=0.5)
    assert vaccinated(people[None], np.array([days]), time)[:, 0].T == pytest.approx(made.y, abs=1e-6)


def test_where_nobody_is_vaccinated_the_campaign_never_begins() -> None:
    shares = np.full((1, 9), 1.0 / 9.0)
    assert vaccinated(shares, np.array([np.inf]), np.array([1.0, 360.0])) == pytest.approx(0.0, abs=1e-12)


@needs_data
@pytest.mark.parametrize(
    ("group", "campaign", "infected"),
    [
        (
            "High-income countries",
            Campaign("fast", 400.0, 0.95, 0.438),
            [0.0656, 0.0656, 0.0988, 0.1711, 0.3210, 0.3964, 0.4474],
        ),
        (
            "Low-income countries",
            Campaign("fast", 400.0, 0.70, 0.438),
            [0.3035, 0.2642, 0.2282, 0.2162, 0.2365, 0.2837, 0.3429],
        ),
        (
            "High-income countries",
            Campaign("slow", 400.0, 0.95, 0.438),
            [0.0123, 0.0153, 0.0215, 0.0279, 0.0403, 0.0519, 0.0670],
        ),
        ("High-income countries", Campaign("fast", 400.0, 0.95, 1.5), [0.3170, 0.3167, 0.1973, 0.2193, 0.3349, 0.4002, 0.4474]),
    ],
)
def test_infections_fall_and_rise_with_the_dose_as_reckoned_before(
    group: str, campaign: Campaign, infected: list[float]
) -> None:
    values = 1.0 - uninfected(campaign, np.tile(pyramid(group), (len(DOSES), 1)), DOSES)
    assert values == pytest.approx(infected, abs=1.1e-4)


@needs_data
def test_antibodies_protect_as_the_measured_curve_says() -> None:
    assert protection(0.95, np.array([0.2, 0.4, 0.8, 1.0])) == pytest.approx([0.7649, 0.8710, 0.9362, 0.95], abs=1e-4)
    assert protection(0.70, np.array([0.2, 0.4, 0.8])) == pytest.approx([0.3399, 0.4858, 0.6514], abs=1e-4)


@needs_data
def test_countries_are_those_with_the_most_people_and_disagree_about_the_dose() -> None:
    federation = Vaccine()
    made = [federation.objective(a, Streams(0).rng("world"), Streams(0).rng("own")) for a in range(federation.n_agents)]
    names = [one.name for one in made]
    assert federation.n_agents == 25 and names[:2] == ["China", "India"] and len(populations()) == 201
    grid = np.array([0.06, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0])[:, None]
    best = {one.name: float(grid[np.argmax(one.scores(grid)), 0]) for one in made}
    wanted = {"Japan": 0.06, "Italy": 0.06, "Germany": 0.06, "China": 0.06, "Brazil": 0.1, "India": 0.1, "Nigeria": 0.15}
    assert {name: best[name] for name in wanted} == wanted


@needs_data
def test_noise_is_bounded_and_many_evaluations_are_those_made_one_by_one() -> None:
    one: Country = Vaccine(agents=2, half_width=0.05).objective(1, Streams(0).rng("world"), Streams(0).rng("own"))
    x, at_once, singly = np.array([0.4]), Streams(1).rng("noise"), Streams(1).rng("noise")
    many = one.evaluate_many(x, 20, at_once)
    np.testing.assert_array_equal(many, [one.evaluate(x, singly) for _ in range(20)])
    assert 0.0 < np.abs(many - one.score(x)).max() <= 0.05


def test_without_the_data_it_is_said_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path))
    with pytest.raises(DataMissingError, match="'covid' is not on this machine and it cannot be fetched. Get population"):
        data.locate("covid")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"agents": 202}, "agents must be in .1, 201., not 202; there are 201 countries"),
        ({"least": 0.0}, "least must be in .0.01, 1., not 0.0"),
        ({"efficacy": 0.2}, "efficacy must be in .0.35, 0.98., not 0.2"),
        ({"days": 0.5}, "days must be in .1, 100000., not 0.5"),
        ({"epidemic": "flu"}, "no epidemic 'flu'; available: declining, fast, slow"),
        ({"half_width": -0.1}, "half_width must be at least 0 and finite, not -0.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Vaccine(**settings)  # type: ignore[arg-type]
