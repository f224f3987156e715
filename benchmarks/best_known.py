"""The best values known of surrogate tasks: searches each data set and prints `fedbo/objectives/tasks/best_known.json`.

The search starts from the 16 best of 8,192 Sobol points. Around each it draws 64 points in each of 24 boxes, each 0.75 times
as large as the one before. It prints values of single points, as an evaluation returns them.

    python benchmarks/best_known.py > fedbo/objectives/tasks/best_known.json
"""

from __future__ import annotations

import json

import numpy as np
from scipy.stats.qmc import Sobol

from fedbo.objectives.base import Array
from fedbo.objectives.space import from_unit
from fedbo.objectives.tasks.tuning_tasks import LCBench, XGBoostTasks

START, KEPT, BOXES, CLOUD = 2**13, 16, 24, 64


def best(federation: LCBench | XGBoostTasks, data_set: str, cube: Array) -> float:
    """Search one data set."""
    task, parameters = federation.task(data_set), federation.parameters
    values = task.scores(from_unit(parameters, cube))
    top = np.argsort(-values, kind="stable")[:KEPT]
    centres, values = cube[top], values[top]
    cloud, reach = 2.0 * Sobol(cube.shape[1], scramble=False).random(CLOUD) - 1.0, 0.4
    for _ in range(BOXES):
        near = np.clip(centres[:, None] + reach * cloud, 0.0, 1.0)
        seen = task.scores(from_unit(parameters, near.reshape(-1, cube.shape[1]))).reshape(KEPT, CLOUD)
        better = seen.max(axis=1) > values
        centres = np.where(better[:, None], near[np.arange(KEPT), seen.argmax(axis=1)], centres)
        values, reach = np.maximum(values, seen.max(axis=1)), 0.75 * reach
    rng = np.random.default_rng(0)
    return max(task.evaluate(from_unit(parameters, centre), rng) for centre in centres)


def main() -> None:
    """Search all data sets, about 33,000 evaluations each, and print the file; the true values may be larger."""
    found = dict[str, dict[str, float]]()
    for name, federation in (("lcbench", LCBench()), ("rbv2_xgboost", XGBoostTasks())):
        cube = Sobol(len(federation.parameters), scramble=False).random(START)
        found[name] = {data_set: best(federation, data_set, cube) for data_set in federation.data_sets}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
