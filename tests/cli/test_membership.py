"""A consortium from the command line: three hospitals, each with its own hands."""

import json

import pytest

pytest.importorskip("nvflare")

SITES = ("london", "paris", "rome")


@pytest.fixture(scope="module")
def yaml(tmp_path_factory):
    path = tmp_path_factory.mktemp("yaml") / "consortium.yml"
    path.write_text(
        "name: trio\nserver: {host: localhost, port: 8002}\nsites: [london, paris, rome]\n"
    )
    return path


def test_three_hospitals_become_a_consortium(anamorph, yaml, tmp_path):
    consortium, members = tmp_path / "consortium", tmp_path / "consortium" / "members.json"
    kits = {name: tmp_path / name / "kit" for name in SITES}
    founded = anamorph("federation", "provision", yaml, "-o", consortium, "--json", succeeds=True)
    assert len(founded.json["fingerprint"]) == 39
    assert not list(consortium.rglob("london*"))
    prints = {}
    for name, kit in kits.items():
        joined = anamorph("site", "join", kit, "--name", name, "--json", succeeds=True).json
        prints[name] = joined["fingerprint"]
    requests = [kit / f"{name}.csr" for name, kit in kits.items()]
    signed = anamorph("federation", "sign", consortium, requests[0], succeeds=True).stdout
    assert "Still to come: paris, rome" in signed
    anamorph("federation", "sign", consortium, *requests[1:], succeeds=True)
    for name, kit in kits.items():
        updated = anamorph("site", "update", kit, members, succeeds=True).stdout
        for other in SITES:
            if other != name:
                assert f"{other} is not accepted yet" in updated
                assert prints[other] not in updated  # it comes from the other site, by telephone
                anamorph("site", "accept", kit, other, prints[other], succeeds=True)
    roster = anamorph("site", "roster", kits["rome"], "--json", succeeds=True).json
    assert [entry["problem"] for entry in roster["sites"]] == [None] * 3
    assert {entry["name"]: entry["fingerprint"] for entry in roster["sites"]} == prints
    shown = anamorph("site", "roster", kits["rome"], succeeds=True).stdout
    assert "this site" in shown
    assert "0 not trusted" in shown

    # One is revoked, renews its key, and is accepted again.
    anamorph("federation", "revoke", consortium, "paris", succeeds=True)
    told = anamorph("site", "update", kits["london"], members, succeeds=True).stdout
    assert "paris is no longer a member" in told
    renewed = anamorph("site", "renew", kits["paris"], "--new-key", "--json", succeeds=True).json
    assert renewed["fingerprint"] != prints["paris"]
    anamorph("federation", "sign", consortium, renewed["request"], succeeds=True)
    told = anamorph("site", "update", kits["london"], members, succeeds=True).stdout
    assert "paris is shown with another key" in told
    accept = ("site", "accept", kits["london"], "paris")
    assert "not" in anamorph(*accept, prints["paris"]).error
    anamorph(*accept, renewed["fingerprint"], succeeds=True)
    anamorph("site", "accept", kits["london"], "rome", "--withdraw", succeeds=True)
    lines = [
        json.loads(line) for line in (kits["london"] / "work/audit.jsonl").read_text().splitlines()
    ]
    assert [line["event"] for line in lines].count("accepted") == 3
    assert lines[-1]["event"] == "withdrawn"
    audit = anamorph("site", "audit", kits["london"] / "work", succeeds=True).stdout
    assert "rome is accepted no longer" in audit
    anamorph("federation", "renew", consortium, succeeds=True)


def test_errors_are_one_line(anamorph, yaml, tmp_path):
    anamorph("federation", "provision", yaml, "-o", tmp_path / "c", succeeds=True)
    anamorph("site", "join", tmp_path / "kit", "--name", "london", succeeds=True)
    for command, complaint in [
        (("federation", "provision", yaml, "-o", tmp_path / "c"), "is not empty"),
        (("federation", "sign", tmp_path, tmp_path / "kit/london.csr"), "has no authority"),
        (("federation", "sign", tmp_path / "c", yaml), "not a signing request"),
        (("federation", "sign", tmp_path / "c", tmp_path / "no.csr"), "No such file"),
        (("federation", "revoke", tmp_path / "c", "rome"), "rome is not a member"),
        (("site", "join", tmp_path / "kit", "--name", "london"), "is not empty"),
        (("site", "join", tmp_path / "new", "--name", "a b"), "a site must be"),
        (("site", "join", tmp_path / "new", "--name", "coordinator"), "cannot be called"),
        (("site", "roster", tmp_path / "kit"), "is not finished"),
        (("site", "roster", tmp_path), "is not a kit"),
        (("site", "update", tmp_path / "kit", tmp_path / "c/members.json"), "no certificate of"),
        (("site", "update", tmp_path / "kit", yaml), "not a members file"),
        (("site", "accept", tmp_path / "kit", "paris", "12"), "32 digits"),
        (("site", "accept", tmp_path / "kit", "paris"), "give a fingerprint"),
        (("site", "accept", tmp_path / "kit", "london", "1" * 32), "is this site"),
        (("site", "accept", tmp_path / "kit", "paris", "--withdraw"), "was not accepted"),
        (("site", "renew", tmp_path), "is not a kit"),
    ]:
        assert complaint in anamorph(*command).error
    assert not (tmp_path / "new").exists()


def test_a_doctor_says_what_is_missing(anamorph, tmp_path):
    anamorph("site", "join", tmp_path / "kit", "--name", "london", succeeds=True)
    result = anamorph("site", "doctor", tmp_path / "kit", "--json")
    assert result.exit_code == 1
    assert result.json["n_problems"] == 1
    assert "is not finished" in result.json["findings"][-1]["text"]
