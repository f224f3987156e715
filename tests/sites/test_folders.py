"""The folders of sites and coordinators: who is approved for which agent, and how keys are replaced and revoked."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from fedbo.settings.errors import ArgumentError
from fedbo.sites.audit import read_audit
from fedbo.sites.documents import Approval, Roster, SiteRequest
from fedbo.sites.errors import PolicyError, SitesError
from fedbo.sites.folders import ServiceFolder, SiteFolder
from fedbo.sites.policy import SHARES, SitePolicy
from fedbo.study.paths import DirectoryError

TERMS: dict[str, Any] = {"study": "vaccine", "agents": 3}


def service(path: Path, **changed: Any) -> ServiceFolder:
    return ServiceFolder.create(path / "vaccine.sites", TERMS, "https://localhost:7443", **changed)


def site(path: Path, name: str) -> SiteFolder:
    return SiteFolder.create(path / name, name)


def request_of(folder: SiteFolder) -> SiteRequest:
    return SiteRequest.read(folder.path / "request.json")


def test_three_sites_are_approved_and_find_their_keys(tmp_path: Path) -> None:
    coordinator = service(tmp_path)
    approvals = []
    for name in ("north", "east", "west"):
        folder = site(tmp_path, name)
        approval = coordinator.approve(request_of(folder))
        approval.write(folder.path / "approval.json")
        again = Approval.read(folder.path / "approval.json")
        assert SiteFolder.of(folder.path / "approval.json") == folder
        assert folder.key(again).public.hex == again.key and again.digest == coordinator.digest
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        approvals.append(again)
    assert [approval.agent for approval in approvals] == [0, 1, 2]
    opened = ServiceFolder(coordinator.path)
    assert opened.digest == coordinator.digest and opened.key.public == coordinator.key.public
    roster = opened.roster()
    assert [(entry.agent, entry.name) for entry in roster.entries] == [(0, "north"), (1, "east"), (2, "west")]
    with pytest.raises(SitesError, match="all 3 agents have had a site"):
        coordinator.approve(request_of(site(tmp_path, "south")))
    with pytest.raises(SitesError, match="the approval is of another key"):
        SiteFolder(tmp_path / "north").key(approvals[1])


def test_the_same_request_gets_the_same_approval(tmp_path: Path) -> None:
    coordinator, request = service(tmp_path), request_of(site(tmp_path, "north"))
    first = coordinator.approve(request, 2)
    assert coordinator.approve(request) == first == Approval.read(coordinator.path / "approvals" / "north.json")
    assert first.agent == 2 and coordinator.roster().number == 1
    with pytest.raises(SitesError, match="was approved as agent 2 already"):
        coordinator.approve(request, 1)


def test_a_site_cannot_take_the_place_or_the_name_of_another(tmp_path: Path) -> None:
    coordinator = service(tmp_path)
    coordinator.approve(request_of(site(tmp_path, "north")))
    with pytest.raises(SitesError, match="agent 0 is the site 'north'; to replace it, first run: fedbo revoke 0"):
        coordinator.approve(request_of(site(tmp_path, "east")), 0)
    for number in (-1, 3):
        with pytest.raises(SitesError, match="must be from 0 to 2"):
            coordinator.approve(request_of(site(tmp_path, f"west{number}")), number)
    with pytest.raises(SitesError, match="another key of 'north' is active"):
        coordinator.approve(request_of(SiteFolder.create(tmp_path / "other", "north")))
    assert len(coordinator.roster().entries) == 1


def test_a_running_service_sees_a_revocation_at_once_and_records_it(tmp_path: Path) -> None:
    coordinator, folder = service(tmp_path), site(tmp_path, "north")
    running, log = ServiceFolder(coordinator.path), None
    log = running.audit()
    request = request_of(folder)
    coordinator.approve(request)
    assert running.roster().key_of(0) == request.signer
    coordinator.revoke(0)
    assert running.roster().key_of(0) is None
    entry = running.roster().entry_of(request.signer)
    assert entry is not None and entry.state == "revoked"
    with pytest.raises(SitesError, match="the key of 'north' was revoked"):
        coordinator.approve(request)
    with pytest.raises(SitesError, match="agent 0 has no active key; active are: none"):
        coordinator.revoke(0)
    # The site's machine is gone; a new key gets the agent's number only when it is named.
    new = request_of(SiteFolder.create(tmp_path / "new", "north"))
    assert coordinator.approve(new, 0).agent == 0 and running.roster().key_of(0) == new.signer
    log.close()
    assert [record["roster"] for record in read_audit(coordinator.path / "audit.jsonl")] == [1, 2, 3]


def test_a_key_is_rotated_while_the_earlier_one_goes_on(tmp_path: Path) -> None:
    coordinator, folder = service(tmp_path), site(tmp_path, "north")
    first = coordinator.approve(request_of(folder))
    request = folder.rotate(first)
    assert folder.key(first).public.hex == first.key, "the earlier key is valid until the coordinator has approved the new one"
    assert coordinator.roster().key_of(0) == folder.key(first).public
    second = coordinator.approve(request_of(folder))
    assert (second.agent, second.digest, second.key) == (0, first.digest, request.key)
    assert folder.key(second).public.hex == request.key == coordinator.roster().key_of(0).hex  # type: ignore[union-attr]
    third = coordinator.approve(folder.rotate(second))
    states = [entry.state for entry in coordinator.roster().entries]
    assert states == ["revoked", "revoked", "active"] and folder.key(third).public.hex == third.key
    with pytest.raises(SitesError, match="replaces a key that is not active here"):
        coordinator.approve(folder.rotate(first))


def test_a_request_of_a_rotation_at_another_study_is_refused(tmp_path: Path) -> None:
    here, there = service(tmp_path / "a"), service(tmp_path / "b")
    folder = site(tmp_path, "north")
    approval = here.approve(request_of(folder))
    with pytest.raises(SitesError, match="replaces a key that is not active here"):
        there.approve(folder.rotate(approval))
    assert here.digest != there.digest, "two services of one study have different digests"


def test_a_roster_of_another_study_is_refused(tmp_path: Path) -> None:
    here, there = service(tmp_path / "a"), service(tmp_path / "b")
    here.approve(request_of(site(tmp_path, "north")))
    Roster.read(here.path / "roster.json").write(there.path / "roster.json")
    with pytest.raises(SitesError, match="is the roster of another study"):
        there.roster()


def test_a_study_that_has_changed_since_its_approvals_is_refused(tmp_path: Path) -> None:
    coordinator = service(tmp_path)
    coordinator.check_terms({"agents": 3, "study": "vaccine"})
    with pytest.raises(SitesError, match="the study has changed: sites were approved for other terms"):
        coordinator.check_terms({**TERMS, "agents": 4})


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SitesError, match="is not the folder of a served study; approve a first site"):
        ServiceFolder(tmp_path)
    with pytest.raises(SitesError, match="is not the folder of a site; put the approval into the folder"):
        SiteFolder.of(tmp_path / "approval.json")
    folder = site(tmp_path, "north")
    with pytest.raises(SitesError, match="there is a key already, which is kept"):
        site(tmp_path, "north")
    assert SiteFolder.of(tmp_path / "approval.json", folder.path) == folder
    coordinator = service(tmp_path)
    with pytest.raises(SitesError, match="there is a served study already"):
        service(tmp_path)
    (coordinator.path / "coordinator.key").chmod(0o644)
    with pytest.raises(SitesError, match="other users can read this key"):
        ServiceFolder(coordinator.path)
    for key, value in (("endpoint", "http://a"), ("connection", "plain"), ("certificate", "none")):
        with pytest.raises(ArgumentError, match=f"{key} = "):
            ServiceFolder.create(tmp_path / "other", TERMS, **{"endpoint": "https://a", key: value})  # type: ignore[arg-type]
    with pytest.raises(DirectoryError):
        SiteFolder.create(tmp_path / "north" / "policy.toml" / "x", "x")


def test_a_proxy_that_ends_tls_leaves_none_to_the_server(tmp_path: Path) -> None:
    behind = service(tmp_path / "a", connection="proxy", certificate="public")
    assert behind.server_context() is None
    approval = behind.approve(request_of(site(tmp_path, "north")))
    assert approval.trust.certificate == "public" and approval.trust.authority is None
    own = service(tmp_path / "b", names=["10.0.0.1"])
    pinned = own.approve(request_of(SiteFolder(tmp_path / "north")))
    assert own.server_context() is not None and pinned.trust.authority == (own.path / "authority.pem").read_text()


def admitted(folder: Path, **fields: Any) -> SitePolicy:
    lines = [f"{key} = {value!r}" for key, value in fields.items()]
    (folder / "policy.toml").write_text("\n".join(lines))
    return SitePolicy.read(folder / "policy.toml")


def test_the_policy_of_a_new_site_serves_no_study(tmp_path: Path) -> None:
    folder, coordinator = site(tmp_path, "north"), service(tmp_path)
    approval = coordinator.approve(request_of(folder))
    policy = folder.policy()
    assert policy == SitePolicy() and policy.share == "nothing" and policy.evaluations == 1000
    with pytest.raises(PolicyError, match=f"fedbo site accept APPROVAL {approval.fingerprint}"):
        policy.admit(approval, "nothing", "draws", None)
    admitted(tmp_path, studies=[approval.fingerprint]).admit(approval, "nothing", "draws", None)


@pytest.mark.parametrize("allowed", SHARES)
@pytest.mark.parametrize("asked", SHARES)
def test_no_more_leaves_than_the_policy_allows(allowed: str, asked: str, tmp_path: Path) -> None:
    approval = service(tmp_path).approve(request_of(site(tmp_path, "north")))
    policy = admitted(tmp_path, studies=[approval.fingerprint], share=allowed)
    if SHARES.index(asked) <= SHARES.index(allowed):  # type: ignore[arg-type]
        policy.admit(approval, asked, "draws", None)
    else:
        with pytest.raises(PolicyError, match=f'share = "{allowed}", but the study asks for "{asked}"'):
            policy.admit(approval, asked, "draws", None)


def test_messages_that_reveal_more_than_the_policy_allows_are_refused(tmp_path: Path) -> None:
    approval = service(tmp_path).approve(request_of(site(tmp_path, "north")))
    order = ("nothing", "noisy sums", "draws", "computable", "observations")
    for allowed in order:
        policy = admitted(tmp_path, studies=[approval.fingerprint], reveals=allowed)
        for asked in order:
            if order.index(asked) <= order.index(allowed):
                policy.admit(approval, "nothing", asked, None)
            else:
                with pytest.raises(PolicyError, match=f'or set reveals = "{asked}"'):
                    policy.admit(approval, "nothing", asked, None)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("studies = 3", "studies: "),
        ("studies = ['x']", "studies.0: "),
        ("evaluations = -1", "evaluations: "),
        ("evaluations = true", "evaluations: "),
        ("share = 'all'", "share: "),
        ("reveals = 'all'", "reveals: .*no choice 'all'"),
        ("more = 1", "more: Extra inputs"),
        ("studies = [", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(PolicyError, match=match) as told:
        SitePolicy.read(tmp_path / "policy.toml")
    assert "\n" not in str(told.value)
    with pytest.raises(PolicyError, match="without a policy the site serves no study"):
        SitePolicy.read(tmp_path / "missing.toml")
