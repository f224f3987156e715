"""The data set of measured durations."""

from __future__ import annotations

from fedbo.objectives.datasets.inventory import DataFile, DataSet

# None of these addresses could be reached from where this was written. A file from elsewhere with the sha256 is as good.
PAI = "https://raw.githubusercontent.com/alibaba/clusterdata/master/cluster-trace-gpu-v2020/mini-batch-time"

DATA_SETS: dict[str, DataSet] = {
    "pai": DataSet(
        name="pai",
        files=tuple(
            DataFile(name=f"job_{number}_norm.csv", size=size, sha256=sha256, address=f"{PAI}/job_{number}_norm.csv")
            for number, size, sha256 in (
                (1, 54_814, "6f555e44ababa68c25659f911eb28fa7658f7ff0b3c08161a57b3bce0bf0d2dd"),
                (2, 43_452, "c1945786e809ec0c204aa3f0e30d7dd3111234ef873707cb8304bdd290d433b2"),
                (3, 45_109, "47057a62829a1fbea6c90e43aeba53d4a9c2804c38ce31fd618d2426ef2b530b"),
                (4, 425_467, "eccd5b23e4480e585082ba4affecbcc240150a9dcfc69b237d4dcb28ad146bc6"),
            )
        ),
        licence="CC BY 4.0",
        citation="Weng et al.: MLaaS in the wild: workload analysis and scheduling in large-scale heterogeneous GPU "
        "clusters. NSDI 2022; Xiao et al.: AntMan: dynamic scaling on GPU clusters for deep learning. OSDI 2020",
    )
}
