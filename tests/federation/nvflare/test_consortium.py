"""Consortia and kits: what is written down, what a kit holds, and what it does not."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("nvflare")

from anamorph.federation import ConsortiumError
from anamorph.federation.nvflare.consortium import Consortium, read_consortium
from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.provision import provision
from examples.federation.rehearsal import rehearse

TRIO = Consortium("trio", "localhost", 8002, ("london", "paris", "rome"))


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return rehearse(TRIO, tmp_path_factory.mktemp("consortium") / "kits")


def test_a_short_yaml_describes_a_consortium(tmp_path):
    path = tmp_path / "consortium.yml"
    path.write_text("name: trio\nserver: {host: localhost}\nsites: [london, paris, rome]\n")
    assert read_consortium(path) == TRIO


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: [", "not a YAML file"),
        ("trio", "must hold"),
        ("name: trio\nsites: [a]", "server is missing"),
        ("name: trio\nserver: {host: h}\nsites: [a]\nadmin: me", "admin is not known"),
        ("name: a b\nserver: {host: h}\nsites: [a]", "name must be"),
        ("name: trio\nserver: {host: 'h h'}\nsites: [a]", "host must be"),
        ("name: trio\nserver: {host: h, port: 70000}\nsites: [a]", "port must be"),
        ("name: trio\nserver: {host: h}\nsites: a", "sites must be a list"),
        ("name: trio\nserver: {host: h}\nsites: [a, A]", "different names"),
        ("name: trio\nserver: {host: h}\nsites: [../a]", "a site must be"),
        ("name: trio\nserver: {host: h}\nsites: [coordinator]", "cannot be called"),
        # The server's certificate is issued to its host: a site could pass for it.
        ("name: trio\nserver: {host: h}\nsites: [a, h]", "cannot be called"),
    ],
)
def test_a_yaml_that_does_not_is_told_what_is_wrong(tmp_path, text, complaint):
    path = tmp_path / "consortium.yml"
    path.write_text(text)
    with pytest.raises(ConsortiumError, match=complaint) as caught:
        read_consortium(path)
    assert str(path) in str(caught.value)


def test_every_party_has_a_kit(kits):
    assert [kit.name for kit in kits] == ["coordinator", *TRIO.sites]
    for kit in kits:
        assert open_kit(kit.folder, as_site=kit.name != "coordinator") == kit


def test_a_kit_is_not_mistaken_for_another(kits, tmp_path):
    coordinator, london, *_ = kits
    with pytest.raises(ConsortiumError, match="kit of a site is needed"):
        open_kit(coordinator.folder, as_site=True)
    with pytest.raises(ConsortiumError, match="kit of the coordinator is needed"):
        open_kit(london.folder, as_site=False)
    with pytest.raises(ConsortiumError, match="not a kit"):
        open_kit(tmp_path, as_site=True)


def test_a_consortium_is_founded_in_a_new_folder_only(kits):
    with pytest.raises(ConsortiumError, match="not empty"):
        provision(TRIO, kits[0].folder.parent)


def test_a_key_is_in_one_kit_only_and_for_its_owner(kits):
    folder = kits[0].folder.parent.parent
    found = [path for path in folder.rglob("*") if path.suffix == ".key"]
    assert len({path.read_text() for path in found}) == len(found) == 6
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    assert all(kit.folder.stat().st_mode & 0o077 == 0 for kit in kits)


def test_whoever_provisions_has_no_private_key_of_a_site(kits):
    coordinator, *sites = kits
    secrets = [(site.startup / "client.key").read_text() for site in sites]
    files = [path for path in coordinator.folder.parent.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        text = path.read_text()
        assert not any(secret in text for secret in secrets)
        # Nor in any other form: its own three keys are all that there are.
        is_key = "PRIVATE KEY" in text
        assert is_key == (path.name in ("authority.key", "server.key", "client.key")), path


def test_a_kit_holds_no_private_key_but_its_own(kits):
    for site in kits[1:]:
        files = [path for path in site.folder.rglob("*") if path.is_file()]
        holders = [path.name for path in files if "PRIVATE KEY" in path.read_text()]
        assert holders == ["client.key"]


def test_nothing_but_the_installed_programs_may_run(kits):
    for kit in kits:
        resources = json.loads((kit.local / "resources.json").read_text())
        classes = resources["class_allow_list"]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert len(classes) == 2
        assert sum(name.startswith("anamorph.") for name in classes) == 1
        rights = json.loads((kit.local / "authorization.json").read_text())["permissions"]
        assert rights.keys() == {"lead"}
        assert {"byoc", "shell_commands", "operate"} <= {
            right for right, who in rights["lead"].items() if who == "none"
        }
        assert not list(kit.folder.rglob("*.sh"))


def test_nothing_leaves_or_falls_outside_a_kit(kits):
    coordinator, *sites = kits
    for site in sites:
        resources = json.loads((site.local / "resources.json").read_text())
        assert resources["allow_log_streaming"] is False
        assert "log" not in " ".join(component["id"] for component in resources["components"])
    resources = (coordinator.local / "resources.json").read_text()
    assert "/tmp/nvflare" not in resources
    assert str(coordinator.work / "jobs") in resources
