"""A federation of GPUs: each agent tunes the same kernel on its own GPU, by complete tables of published measurements.

Choose methods and settings on `convolution` and `pnpoly`, and publish results of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedbo.objectives.base import Metric, Parameter, require, require_agent
from fedbo.objectives.tasks.kernel_spaces import KERNELS
from fedbo.objectives.tasks.kernel_tables import KernelTask
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.ranges import check


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
