"""The policy of a site: a TOML file that its owner writes, and that fedbo only reads."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedbo.actors.storage import atomic
from fedbo.algorithms.reveals import Reveals, read_reveals
from fedbo.settings.shown import shown
from fedbo.sites.documents import Approval, first_fault
from fedbo.sites.errors import PolicyError
from fedbo.sites.keys import PublicKey

Share = Literal["nothing", "scores", "observations"]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{4}(-[0-9a-f]{4}){7}$")]
SHARES: tuple[Share, ...] = ("nothing", "scores", "observations")  # each also allows those before
_LONGEST = 2**20  # bytes of a policy file
TEMPLATE = """\
# What this site allows. fedbo reads this file whenever the site joins a study.

# Fingerprints of the studies that this site serves: `fedbo site accept` adds one.
studies = []

# The most evaluations of one study, repeated ones included.
evaluations = 1000

# What may leave besides messages: "nothing", "scores" (the value of each evaluation) or "observations" (its point, too).
share = "nothing"

# The most that messages may reveal of observations: "noisy sums", "draws", "computable" or "observations".
# `fedbo list algorithms` prints what the messages of each method reveal.
reveals = "draws"

# The most epsilon that all messages of one study may cost, where noise hides them: `fedbo preflight` prints what a study may
# cost. Messages with less noise count as messages without any, which `reveals` admits only as "observations".
epsilon = 10.0

# Only with secure aggregation: fingerprints of the keys of all sites, this one too, as their owners read them to you. A message
# is then hidden among these sites alone. Without them the coordinator could invent sites, and subtract what these send.
peers = []
"""


class SitePolicy(BaseModel):
    """The policy of a site.

    - `studies`: fingerprints of the studies that it serves (`Approval.fingerprint`).
    - `evaluations`: the most evaluations of one study, repeated ones included.
    - `share`: what may leave besides messages: nothing, each evaluation's score, or each observation with its point.
    - `reveals`: the most that messages may reveal of observations.
    - `epsilon`: the most that all messages of a study may cost; those that noise hides less count as observations.
    - `peers`: fingerprints of the sites with which it may hide its messages by masks; empty for all that the coordinator names.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    studies: tuple[Fingerprint, ...] = ()
    evaluations: Annotated[int, Field(ge=0)] = 1000
    share: Share = "nothing"
    reveals: str = Reveals.DRAWS.value
    epsilon: Annotated[float, Field(gt=0)] = 10.0
    peers: tuple[Fingerprint, ...] = ()

    @field_validator("studies", "peers", mode="before")
    @classmethod
    def _from_toml(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("reveals")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return read_reveals(value).value

    @classmethod
    def read(cls, path: Path) -> SitePolicy:
        """Read a policy file; PolicyError where it is missing or invalid."""
        try:
            with path.open("rb") as file:
                data = file.read(_LONGEST)
            return cls(**tomllib.loads(data.decode()))
        except OSError as error:
            words = "restore the file; without a policy the site serves no study"
            raise PolicyError(f"'{path}': the policy cannot be read ({error.strerror}); {words}") from None
        except ValidationError as error:
            raise PolicyError(f"'{path}': {first_fault(error)}; correct it") from None
        except (ValueError, RecursionError) as error:
            raise PolicyError(f"'{path}': is not TOML ({shown(str(error))[:100]}); correct it") from None

    def admit(self, approval: Approval, share: str, reveals: str, epsilon: float | None) -> None:
        """Check that the site serves a study.

        `share` is what its public terms ask sites to release, `reveals` what its messages reveal, and `epsilon` the most that
        these cost, None without noise. PolicyError when the policy allows less, with the line of the policy file to change.
        """
        if approval.fingerprint not in self.studies:
            words = f"compare fingerprints with the coordinator, then run: fedbo site accept APPROVAL {approval.fingerprint}"
            raise PolicyError(f"policy.toml: studies does not list the study '{approval.study}'; {words}")
        if share not in SHARES or SHARES.index(share) > SHARES.index(self.share):
            raise PolicyError(f'policy.toml: share = "{self.share}", but the study asks for "{share}"; decline, or allow it')
        if read_reveals(reveals).exceeds(Reveals(self.reveals)):
            words = f'{Reveals(reveals).meaning}; decline, or set reveals = "{reveals}"'
            raise PolicyError(f'policy.toml: reveals = "{self.reveals}", but of this study {words}')
        if (epsilon or 0.0) > self.epsilon and Reveals.OBSERVATIONS.exceeds(Reveals(self.reveals)):
            words = f"messages of this study may cost {epsilon:.4g}; decline, or set epsilon = {epsilon:.4g}"
            raise PolicyError(f"policy.toml: epsilon = {self.epsilon:g}, but the {words}")

    def admit_peers(self, sites: Mapping[int, PublicKey]) -> None:
        """Check the sites, by agent, among which a message is to be hidden; PolicyError where one is not a peer."""
        for agent, key in sites.items():
            if self.peers and key.fingerprint not in self.peers:
                raise PolicyError(f"policy.toml: peers does not list the key {key.fingerprint} of agent {agent}")


def admit_study(path: Path, fingerprint: str) -> None:
    """Add a study to the list `studies` of a policy file; PolicyError where its user must do so by hand."""
    before = SitePolicy.read(path)
    text = re.sub(r"(?m)^(\s*studies\s*=\s*\[)", rf'\1"{fingerprint}", ', path.read_text(encoding="utf-8"), count=1)
    # Text that only looks like the list, for example within a string, is found by reading the result.
    if not _reads_as(text, {**before.model_dump(), "studies": (fingerprint, *before.studies)}):
        raise PolicyError(f"'{path}': the list of studies was not found; add \"{fingerprint}\" to studies by hand")
    atomic.write_text(path, text)


def _reads_as(text: str, expected: Mapping[str, Any]) -> bool:
    try:
        return SitePolicy(**tomllib.loads(text)).model_dump() == dict(expected)
    except ValueError:
        return False
