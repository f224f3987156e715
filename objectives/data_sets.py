"""Which public data sets there are: their files, sizes, sha256, addresses, licences, and the papers to cite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: its name, its size in bytes, its sha256, and its public address; `member` when that is a zip."""

    name: str
    size: int
    sha256: str
    address: str
    member: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published set of files with its licence and the paper to cite."""

    name: str
    files: tuple[DataFile, ...]
    licence: str
    citation: str


DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet(
            name="landmine",
            files=(
                DataFile(
                    name="LandmineData.mat",
                    size=1_085_456,
                    sha256="2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea",
                    address="http://www.ee.duke.edu/~lcarin/LandmineData.zip",
                    member="LandmineData.mat",
                ),
            ),
            licence="none stated",
            citation="Xue, Liao, Carin, Krishnapuram: Multi-task learning for classification with Dirichlet process "
            "priors. JMLR 8, 2007",
        ),
    )
}
