"""A meeting whose terms list public keys: what its agents did not sign is ignored and named, and ends nothing."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.settings.errors import ArgumentError
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import SiteFolder
from fedbo.sites.keys import PrivateKey
from fedbo.tuning.message_folder import Meeting, MessageKeys, StoredMessage, parsed

SPACE = {"a": (0.0, 1.0), "b": (0.0, 1.0)}


def sites(folder: Path, number: int = 3) -> list[Path]:
    """Create the folders of sites; return the files of their keys."""
    return [SiteFolder.create(folder / f"site-{each}", f"site-{each}").path / "site.key" for each in range(number)]


def public(key: Path) -> str:
    return str(json.loads((key.parent / "request.json").read_text())["key"])


def terms(keys: list[Path], **changed: Any) -> fedbo.Terms:
    return fedbo.Terms(**{"algorithm": "fts", "agents": 3, "initial": 2, "keys": tuple(map(public, keys)), **changed})


def play(agent: fedbo.Agent, steps: int) -> None:
    for _ in range(steps):
        (asked,) = agent.ask()
        agent.tell(asked.token, -((asked.configuration["a"] - 0.3) ** 2))


def opened(folder: Path, keys: list[Path], number: int, shared: str = "meeting", **changed: Any) -> fedbo.Agent:
    meeting = Meeting(folder / shared, key=keys[number])
    return fedbo.Agent(folder / f"agent-{number}", SPACE, terms(keys, **changed), number, meeting)


def decided(agents: list[fedbo.Agent]) -> list[Any]:
    return [[agent.given(f"{agent.number:05d}-{each:06d}").configuration for each in range(6)] for agent in agents]


def together(agents: list[fedbo.Agent]) -> list[Any]:
    for _ in range(6):
        for agent in agents:
            play(agent, 1)
    return decided(agents)


def without_secret(folder: Path, numbers: range) -> None:
    """Give agents the same secret draws in each of a test's runs, so that their messages are equal."""
    for number in numbers:
        (folder / f"agent-{number}").mkdir(parents=True)
        (folder / f"agent-{number}" / "draws.key").write_text(f"{number} {hashlib.sha256(str(number).encode()).hexdigest()}")


def test_signed_messages_are_those_of_a_meeting_without_keys(tmp_path: Path) -> None:
    keys = sites(tmp_path)
    for folder in ("signed", "plain"):
        without_secret(tmp_path / folder, range(3))
    signed = [opened(tmp_path / "signed", keys, number) for number in range(3)]
    meeting = Meeting(tmp_path / "plain" / "meeting")
    plain_terms = fedbo.Terms("fts", agents=3, initial=2)
    plain = [fedbo.Agent(tmp_path / "plain" / f"agent-{number}", SPACE, plain_terms, number, meeting) for number in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert together(signed) == together(plain)
    assert len(list((tmp_path / "signed" / "meeting").iterdir())) == len(list((tmp_path / "plain" / "meeting").iterdir())) == 15
    for agent in signed:
        agent.close()
    # Opened again without a meeting, and so without its own key, an agent reads what it has.
    with fedbo.Agent(tmp_path / "signed" / "agent-1", SPACE, terms(keys), 1) as again:
        assert decided([again]) == decided([plain[1]])
    for agent in plain:
        agent.close()


def test_the_terms_of_agents_without_keys_are_those_of_earlier_versions(tmp_path: Path) -> None:
    # The head of a log that fedbo wrote before terms had keys.
    with fedbo.Agent(tmp_path / "agent", SPACE, fedbo.Terms("fts", agents=3, initial=2), 1) as agent:
        shared = {"algorithm": "fts", "agents": 3, "mode": "max", "initial": 2, "seed": 0, "lease": None}
        expected = hashlib.sha256(json.dumps([shared, agent._written], sort_keys=True).encode()).hexdigest()
        assert agent._digest == expected


def forged(agent: fedbo.Agent, keys: list[Path], number: int, step: int) -> dict[str, dict[str, bytes]]:
    """Return files that claim to be of an agent, by what their signature is."""
    message = StoredMessage(agent._digest[:16], number, step, {"omega": np.zeros(100)})
    known = agent.terms.message_keys(agent._digest, None)
    assert known is not None
    stranger, other = (MessageKeys(known.terms, known.public, PrivateKey.read(key)) for key in (keys[3], keys[1]))
    elsewhere = MessageKeys("ab" * 32, known.public, PrivateKey.read(keys[number]))
    signed = {"a stranger's": stranger, "another agent's": other, "of other terms": elsewhere}
    found = {name: dict([message.file(each)]) for name, each in signed.items()}
    return {"none": dict([message.file()]), **found}


@pytest.mark.parametrize("kind", ["none", "a stranger's", "another agent's", "of other terms"])
@pytest.mark.parametrize("number", [2, pytest.param(0, marks=pytest.mark.long)])
def test_a_file_that_its_agent_did_not_sign_is_ignored_and_named(number: int, kind: str, tmp_path: Path) -> None:
    keys = sites(tmp_path, 4)
    agents = [opened(tmp_path, keys[:3], each) for each in range(2)]
    play(agents[1], 3)
    files = forged(agents[0], keys, number, 50)[kind]
    Meeting(tmp_path / "meeting").write(files)
    (name,) = files
    why = "it is not signed with the key that the terms list for agent 2" if number == 2 else "agent 0 did not send it"
    with pytest.warns(RuntimeWarning, match=f"{name} is ignored: {why}") as told:
        play(agents[0], 4)
    assert len([one for one in told if name in str(one.message)]) == 1
    assert sorted(found.agent for each in agents[0]._log.taken if (found := parsed(each)) is not None) == [0, 0, 0, 1, 1]
    for agent in agents:
        agent.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with opened(tmp_path, keys[:3], 0) as again:  # one bad file ends nothing, also later
            play(again, 2)


def test_a_genuine_message_counts_whatever_a_stranger_writes_for_its_agent(tmp_path: Path) -> None:
    """In a meeting without keys both messages of one sender and step are left out, and so a stranger could silence a site."""
    keys = sites(tmp_path, 4)
    one, two = (opened(tmp_path, keys[:3], each) for each in (0, 2))
    play(two, 2)
    (genuine,) = (path.name for path in (tmp_path / "meeting").iterdir())
    found = parsed(genuine)
    assert found is not None and found.agent == 2
    Meeting(tmp_path / "meeting").write(forged(one, keys, 2, found.step)["a stranger's"])
    with pytest.warns(RuntimeWarning, match="not signed with the key"):
        play(one, 3)
    assert genuine in one._log.taken
    one.close()
    two.close()


def test_a_signed_file_that_was_changed_is_ignored(tmp_path: Path) -> None:
    keys = sites(tmp_path)
    one, two = (opened(tmp_path, keys, each) for each in (0, 2))
    play(two, 2)
    (path,) = (tmp_path / "meeting").iterdir()
    data = path.read_bytes()
    path.unlink()
    rng = np.random.default_rng(0)
    for _ in range(20):
        damaged = bytearray(data)
        damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        name = f"{path.name[:30]}{hashlib.sha256(damaged).hexdigest()}.message"
        assert parsed(name) is not None
        (path.parent / name).write_bytes(damaged)
    with pytest.warns(RuntimeWarning, match="not signed with the key"):
        play(one, 3)
    assert all(found.agent == 0 for each in one._log.taken if (found := parsed(each)) is not None)
    one.close()
    two.close()


def test_keys_and_terms_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    keys = sites(tmp_path, 4)
    good = terms(keys[:3])
    for wrong in (keys[:2], [*keys[:2], keys[1]], keys):
        with pytest.raises(ArgumentError, match="must list 3 different public keys, one for each agent"):
            terms(wrong)
    for text in ("ab", "zz" * 32, 5):
        with pytest.raises(ArgumentError, match="keys = .*is no public key"):
            fedbo.Terms("fts", agents=3, keys=(*good.keys[:2], text))
    with pytest.raises(ArgumentError, match="key = None: the terms list keys"):
        fedbo.Agent(tmp_path / "a", SPACE, good, 0, Meeting(tmp_path / "meeting"))
    with pytest.raises(ArgumentError, match="the terms list no keys; set keys in fedbo.Terms"):
        fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms("fts", agents=3), 0, Meeting(tmp_path / "meeting", key=keys[0]))
    with pytest.raises(ArgumentError, match="which is not number 0 of the terms"):
        fedbo.Agent(tmp_path / "a", SPACE, good, 0, Meeting(tmp_path / "meeting", key=keys[1]))
    with pytest.raises(ArgumentError, match="key = 5: must be the path of a file"):
        Meeting(tmp_path / "meeting", key=5)  # type: ignore[arg-type]
    assert not (tmp_path / "a").exists()


def test_a_meeting_names_its_key_but_does_not_hold_it(tmp_path: Path) -> None:
    keys = sites(tmp_path)
    agreed = terms(keys)
    meeting = pickle.loads(pickle.dumps(Meeting(tmp_path / "meeting", key=keys[0])))
    shutil.rmtree(keys[0].parent)
    with pytest.raises(SitesError, match="the key cannot be read"):
        fedbo.Agent(tmp_path / "a", SPACE, agreed, 0, meeting)
