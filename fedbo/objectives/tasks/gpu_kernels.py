"""A federation of GPUs: each agent tunes the same kernel on its own GPU, by complete tables of published measurements.

In a table (Tørring et al. 2023) every configuration was compiled and timed. The files are caches of Kernel Tuner: gzipped JSON
with a configuration's mean time, its raw times, or a word for its failure.

Choose methods and settings on `convolution` and `pnpoly`, and publish results of the others.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from fedbo.objectives.base import Array, ConfigurationFailedError, Metric, Parameter, require, require_agent
from fedbo.objectives.datasets.data import locate
from fedbo.objectives.space import from_unit, to_unit
from fedbo.objectives.tasks.kernel_spaces import KERNELS, Kernel
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.ranges import check

MILLISECONDS = 1000.0  # in a second


class KernelTable(NamedTuple):
    """The measurements of one GPU.

    place `(cells,)`: the row of each cell of the full grid; -1 where a condition forbids it.
    time `(rows,)`: mean times in ms, NaN for a failed configuration.
    times `(rows, repetitions)`: raw times in ms.
    seconds `(rows,)`: time to compile and to measure.
    failure: the publisher's word for a failure, by row.
    """

    place: npt.NDArray[np.int64]
    time: Array
    times: Array
    seconds: Array
    failure: dict[int, str]


@dataclass(frozen=True)
class KernelTask:
    """A kernel on one GPU: values are minus the logarithm of the time in ms.

    An evaluation is one of the raw times, without `noisy` their mean, which is the score. Its cost is the time to compile and
    to measure, in seconds. A forbidden configuration is replaced by the nearest allowed one.
    """

    kernel: str
    gpu: str
    noisy: bool = True

    @property
    def best_value(self) -> float:
        """Return minus the logarithm of the least mean time, which is exact."""
        return -float(np.log(np.nanmin(self.table.time)))

    @property
    def table(self) -> KernelTable:
        """Return the measurements, read once for each process."""
        return read_table(self.kernel, self.gpu)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return the value of a random raw time at x `(d,)`; ConfigurationFailedError where the kernel does not run."""
        row = self._row(x)
        if row in self.table.failure:
            raise ConfigurationFailedError(f"{self.table.failure[row]}: this configuration does not run on {self.gpu}")
        times = self.table.times[row]
        return -float(np.log(times[rng.integers(len(times))] if self.noisy else self.table.time[row]))

    def score(self, x: Array) -> float | None:
        """Return the value of the mean time at x `(d,)`; None where an observation is that value."""
        return -float(np.log(self.table.time[self._row(x)])) if self.noisy else None

    def cost(self, x: Array) -> float:
        """Return the seconds to compile and to measure at x `(d,)`, also where it fails."""
        return float(self.table.seconds[self._row(x)])

    def _row(self, x: Array) -> int:
        kernel = KERNELS[self.kernel]
        allowed = kernel.space.project(to_unit(kernel.space.parameters, x)[None])
        places = from_unit(kernel.space.parameters, allowed)[0].astype(np.int64)
        return int(self.table.place[np.ravel_multi_index(tuple(places), kernel.sizes)])


@cache
def read_table(kernel: str, gpu: str) -> KernelTable:
    """Read the table of a GPU; DataMissingError where the files are not here and cannot be fetched."""
    with gzip.open(locate(f"kernels/{kernel}") / f"{gpu}.json.gz", "rt", encoding="utf-8") as stream:
        return table_of(KERNELS[kernel], stream.read())


def table_of(kernel: Kernel, text: str) -> KernelTable:
    """Read the table in a cache of Kernel Tuner."""
    entries = list(read_cache(text)["cache"].values())
    codes = [{value: place for place, value in enumerate(each)} for each in kernel.choices.values()]
    places = np.array([[code[one[name]] for code, name in zip(codes, kernel.choices, strict=True)] for one in entries])
    place = np.full(int(np.prod(kernel.sizes)), -1)
    place[np.ravel_multi_index(tuple(places.T), kernel.sizes)] = np.arange(len(entries))
    failure = {row: str(one["time"]) for row, one in enumerate(entries) if isinstance(one["time"], str)}
    repetitions = max(len(one.get("times", ())) for one in entries)
    time, times = np.full(len(entries), np.nan), np.full((len(entries), repetitions), np.nan)
    for row, one in enumerate(entries):
        if row not in failure:
            time[row], times[row] = one["time"], one["times"]
    milliseconds = [one["compile_time"] + one["benchmark_time"] for one in entries]
    return KernelTable(place, time, times, np.array(milliseconds) / MILLISECONDS, failure)


def read_cache(text: str) -> dict[str, Any]:
    """Read a cache of Kernel Tuner, which lacks its last brackets where a campaign of measurements was cut short."""
    kept = text.rstrip().rstrip(",")
    for closing in ("", "}"):
        try:
            found: dict[str, Any] = json.loads(kept + closing)
            return found
        except json.JSONDecodeError:
            continue
    whole: dict[str, Any] = json.loads(kept + "}}")
    return whole


@dataclass(frozen=True)
class GPUKernels:
    """GPU kernels on four or six GPUs: tune block and tile sizes.

    There are 4 to 7 discrete parameters. The quantity is the natural logarithm of the time in ms: a regret of 0.05 is 5 % of
    the best time. Some configurations do not compile or run, and fail. The cost of an evaluation is the time to compile and to
    measure, in seconds.

    kernel: the kernel.
    agents: the number of GPUs, in their order.
    noisy: an evaluation is one of the raw times, and otherwise their mean. The mean always judges the points.
    """

    costly: ClassVar[bool] = True
    fails: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True

    kernel: Literal["convolution", "pnpoly", "convolution_milo", "dedispersion_milo"] = "convolution"
    """Tuned kernel; convolution and pnpoly are for development."""
    agents: Annotated[int, Ge(1)] | None = None
    """First GPUs that take part. Default: all."""
    noisy: bool = True
    """Whether an evaluation is one raw time, or the mean of all."""

    def __post_init__(self) -> None:
        check(self)
        most = len(KERNELS[self.kernel].gpus)
        require(self.agents is None or self.agents <= most, "agents", self.agents, f"use 1 to {most}, the GPUs of this kernel")

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Name the agents' GPUs."""
        return KERNELS[self.kernel].gpus[: self.agents]

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return len(self.agent_names)

    @property
    def lattice(self) -> Space:
        """Return the typed space."""
        return KERNELS[self.kernel].space

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters; each value is the place of a choice in its list."""
        return self.lattice.parameters

    @property
    def metric(self) -> Metric:
        """Name the logarithm of the time."""
        return Metric("log time", sign=-1)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> KernelTask:
        """Build one agent's objective, which does not depend on the streams."""
        require_agent(agent, self.n_agents)
        return KernelTask(self.kernel, self.agent_names[agent], self.noisy)


FEDERATIONS = {"gpu_kernels": GPUKernels}
