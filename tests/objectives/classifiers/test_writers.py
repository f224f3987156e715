"""The writers: who is chosen, how their digits are split, and a network whose errors are a function of its seed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.classifiers.convnet import DEVIATION, MEAN, Recipe, Weights, share_wrong, trained
from fedbo.objectives.classifiers.qmnist import Handwriting, read
from fedbo.objectives.classifiers.writers import MAX_AGENTS, MIN_IMAGES, Writer, Writers, halves, writers_in_turn
from fedbo.objectives.datasets.data import inventory, locate
from fedbo.objectives.space import from_unit

NO_DATA = not any(row.name == "qmnist" and row.state == "found" for row in inventory())
needs_data = pytest.mark.skipif(NO_DATA, reason="QMNIST is not here: see `fedbo data list`")
GOOD = np.array([0.01, 0.03, 0.1])
STRANGE = [0.01, 0.03, 0.1], [1.0, 1.0, 0.8], [0.0001, 0.0001, 0.0]


@cache
def stored() -> Handwriting:
    return read(locate("qmnist"), "train")


def hand(agent: int, epochs: int = 10) -> Writer:
    return Writers(epochs=epochs).objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))


def error(one: Writer, x: np.ndarray) -> float:
    return -one.evaluate(x, Streams(0).rng("none"))


def network(one: Writer, dropout: float = 0.1) -> Weights:
    """Give the weights after two epochs: they tell apart what errors, shares of 65 images, may not."""
    return trained(one.train, Recipe(0.01, 0.03, dropout, 2, one.seed))


def bits(agent: int) -> list[str]:
    one = hand(agent, epochs=2)
    return [error(one, np.array(x)).hex() for x in STRANGE] + [network(one).tobytes().hex()]


@pytest.fixture
def torch() -> Iterator[Any]:
    """Give PyTorch, and put its number of threads and its own stream back afterwards; skip where it is not installed."""
    module = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    if NO_DATA:
        pytest.skip("QMNIST is not here: see `fedbo data list`")
    threads, state = module.get_num_threads(), module.get_rng_state()
    yield module
    module.set_num_threads(threads)
    module.set_rng_state(state)


@needs_data
def test_the_agents_are_employees_and_students_in_turn_with_the_most_digits_first() -> None:
    found, order = stored(), writers_in_turn(stored())
    series = {int(number): int(one) for number, one in zip(found.writer, found.series, strict=True)}
    n = np.bincount(found.writer)
    assert len(order) == len(set(order)) == MAX_AGENTS == np.sum(n >= MIN_IMAGES)
    assert [series[number] for number in order[:50]] == [0, 4] * 25
    for one in (0, 4):
        sizes = [n[number] for number in order if series[number] == one]
        assert sizes == sorted(sizes, reverse=True) and sizes[-1] >= MIN_IMAGES
    assert {series[number] for number in order[-4:]} == {4}  # 218 employees and 222 students have enough


def test_writers_with_equally_many_digits_come_by_number_and_those_with_few_not_at_all() -> None:
    numbers = np.repeat([7, 3, 9, 2, 5], [MIN_IMAGES, MIN_IMAGES, MIN_IMAGES + 1, MIN_IMAGES - 1, MIN_IMAGES])
    series = np.repeat([0, 0, 0, 0, 4], [MIN_IMAGES, MIN_IMAGES, MIN_IMAGES + 1, MIN_IMAGES - 1, MIN_IMAGES])
    images = np.zeros((len(numbers), 28, 28), dtype=np.uint8)
    assert writers_in_turn(Handwriting(images, np.zeros_like(numbers), series, numbers)) == (9, 5, 3, 7)


@needs_data
def test_the_halves_are_disjoint_and_have_all_of_a_writers_digits_in_nearly_equal_numbers() -> None:
    found = stored()
    for number in writers_in_turn(found):
        digit = found.digit[found.writer == number]
        train, validation = halves(digit, number)
        assert sorted([*train, *validation]) == list(range(len(digit)))
        gap = np.bincount(digit[train], minlength=10) - np.bincount(digit[validation], minlength=10)
        assert np.abs(gap).max() <= 1 and abs(len(train) - len(validation)) <= 1
        assert np.array_equal(train, halves(digit, number)[0])


@needs_data
def test_the_pixels_are_scaled_by_their_mean_and_deviation() -> None:
    ink = stored().images[::21] / 255.0  # an even step would leave out one of the series, which take turns
    assert (ink.mean(), ink.std()) == pytest.approx((MEAN, DEVIATION), abs=2e-3)


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LibraryMissingError, match=r"'writers' .* PyTorch; install it with: pip install torch"):
        hand(0)


@pytest.mark.parametrize(("setting", "value"), [("agents", 0), ("agents", 441), ("epochs", 0), ("epochs", 1001)])
def test_a_setting_that_makes_no_sense_is_refused_by_name(setting: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be in .*, not {value}"):
        Writers(**{setting: value})


def test_a_fresh_process_computes_the_same_bits(torch: Any) -> None:
    program = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['bits'](1)))"
    told = subprocess.run([sys.executable, "-c", program, __file__], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == bits(1) == bits(1)


@pytest.mark.parametrize("threads", [1, 2])
def test_neither_the_number_of_threads_nor_the_shared_stream_matters_or_is_touched(torch: Any, threads: int) -> None:
    before = network(hand(0))
    torch.set_num_threads(threads)
    torch.manual_seed(threads)
    state = torch.get_rng_state()
    assert np.array_equal(network(hand(0)), before)
    assert 0.0 <= error(hand(0, epochs=1), GOOD) <= 1.0
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)


@pytest.mark.long
def test_no_operation_is_one_that_pytorch_knows_to_vary(torch: Any) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        strict = bits(0)
    finally:
        torch.use_deterministic_algorithms(False)
    assert strict == bits(0)


def test_three_steps_are_those_of_pytorchs_own_layers_and_optimiser(torch: Any) -> None:
    """An epoch of 16 images is one step; without dropout the order within it does not matter."""
    images, digit = hand(0).train
    few = images[::4][:16], digit[::4][:16]
    start, ours = (trained(few, Recipe(0.05, 0.3, 0.0, epochs, 5)) for epochs in (0, 3))
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )
    torch.nn.utils.vector_to_parameters(torch.tensor(start), net.parameters())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.3)
    pixels = (torch.tensor(few[0]).float().unsqueeze(1) / 255 - MEAN) / DEVIATION
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(pixels), torch.tensor(few[1])).backward()
        optimiser.step()
    theirs = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    assert np.abs(ours - theirs).max() < 1e-4 < 1e-2 < np.abs(ours - start).max()
    assert np.mean(net(pixels).argmax(dim=1).numpy() != few[1]) == share_wrong(ours, few)


def test_initial_weights_have_the_variance_of_he_and_no_bias(torch: Any) -> None:
    """He et al. 2015: 2 / inputs. The standard error of a variance of n normal numbers is sqrt(2 / n) of it: five of these."""
    first, b1, second, b2, dense, b3 = np.split(
        trained(hand(0).train, Recipe(0.01, 0.0, 0.0, 0, 11)), np.cumsum([400, 16, 12_800, 32, 5_120])
    )
    for layer, inputs in ((first, 25), (second, 400), (dense, 512)):
        assert layer.var() == pytest.approx(2.0 / inputs, rel=5.0 * np.sqrt(2.0 / len(layer)))
    assert not any(bias.any() for bias in (b1, b2, b3)) and [len(b) for b in (b1, b2, b3)] == [16, 32, 10]


def test_networks_learn_and_the_learning_rate_matters(torch: Any) -> None:
    """Chance is 0.9. Four writers; loose bounds round what was measured over many more."""
    people = [hand(agent) for agent in range(4)]
    good = np.mean([error(one, GOOD) for one in people])
    timid = np.mean([error(one, np.array([1e-4, 0.03, 0.1])) for one in people])
    wild = np.mean([error(one, np.array([1.0, 0.03, 0.1])) for one in people])
    assert good < 0.2 and timid > good + 0.2 and wild > 0.8


def test_a_network_trained_on_the_images_that_it_is_judged_on_knows_them(torch: Any) -> None:
    seen = hand(1).train
    assert share_wrong(trained(seen, Recipe(0.01, 0.001, 0.0, 15, 1)), seen) <= 0.02


def test_every_setting_of_the_recipe_reaches_the_network(torch: Any) -> None:
    seen, plain = hand(0).train, Recipe(0.01, 0.03, 0.1, 1, 0)
    others = [
        replace(plain, **{name: value})  # type: ignore[arg-type]
        for name, value in {"learning_rate": 0.02, "l2": 0.06, "dropout": 0.2, "epochs": 2, "seed": 1}.items()
    ]
    assert len({trained(seen, recipe).tobytes() for recipe in [plain, *others]}) == 6


def test_an_error_is_a_share_also_where_the_weights_are_no_longer_finite(torch: Any) -> None:
    high = from_unit(Writers().parameters, [1.0, 1.0, 1.0])
    assert error(hand(0), high) == pytest.approx(0.9, abs=0.05)
