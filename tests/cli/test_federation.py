"""Fits and analyses across sites from the command line."""

import csv

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.likelihoods import LIKELIHOODS
from tests.cli.conftest import QUICK, blobs
from tests.images.filemaking import save_picture

N_IMAGES = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    for n, image in enumerate(blobs(N_IMAGES, (12, 10))):
        save_picture(folder / f"image{n}.png", (255 * image).astype(np.uint8))
    rows = [f"image{n}\t{'case' if n % 2 else 'control'}\t{1 + n % 3}" for n in range(N_IMAGES)]
    text = "\n".join(["participant_id\tdiagnosis\tweight", *rows])
    (folder / "participants.tsv").write_text(text + "\n")
    (folder / "policy.toml").write_text("minimum_images = 1\n")
    return folder


@pytest.fixture(scope="module")
def policy(folder):
    return ("--policy", folder / "policy.toml")


def simulate(anamorph, folder, output, *more, **options):
    return anamorph("federation", "simulate", folder, "-o", output, *QUICK, *more, **options)


def test_simulate_gives_the_model_of_one_machine(anamorph, folder, policy, tmp_path):
    shared, pooled = tmp_path / "shared.safetensors", tmp_path / "pooled.safetensors"
    result = simulate(anamorph, folder, shared, *policy, "--json", succeeds=True).json
    assert result["sites"] == ["site1", "site2", "site3"]
    assert result["n_images"] == N_IMAGES
    # A coordinator sees no image, so that its default penalties do not follow the images.
    defaults = LIKELIHOODS["gaussian"].default_penalties
    penalties = [
        f"--{name}-penalty={','.join(map(str, defaults[name]))}" for name in ("appearance", "mean")
    ]
    anamorph("fit", folder, "-o", pooled, *QUICK, *penalties, succeeds=True)
    one, other = (ShapeAppearanceModel.load(path) for path in (shared, pooled))
    np.testing.assert_allclose(one.objective_, other.objective_, rtol=1e-4)
    assert not list(tmp_path.glob("shared*latents*"))
    assert not (tmp_path / "shared.checkpoint").exists()
    audit = anamorph("site", "audit", tmp_path / "shared.sites" / "site1", "--json", succeeds=True)
    answered = [line for line in audit.json["lines"] if line["event"] == "answered"]
    assert {line["n_images"] for line in answered} == {4}
    assert all(line["masked"] for line in answered)
    shown = anamorph("site", "audit", tmp_path / "shared.sites" / "site1", succeeds=True).stdout
    assert all(line["question"] in shown for line in answered)
    assert "…" not in shown
    assert "0 refused" in shown


def test_a_site_that_refuses_is_told_in_one_line(anamorph, folder, tmp_path):
    result = simulate(anamorph, folder, tmp_path / "m.safetensors")
    assert "refuses: this site has fewer images than the 10" in result.error
    result = simulate(anamorph, folder, tmp_path / "n.safetensors", "--sites", "2")
    assert "at least 3 sites" in result.error


def test_a_policy_that_is_wrong(anamorph, folder, tmp_path):
    rules = tmp_path / "policy.toml"
    for text, expected in [
        ("minimum = 3", "unknown rule 'minimum'; known are minimum_images"),
        ("minimum_images = -1", "must be an integer >= 0, got -1"),
        ("secure_sum = 1", "secure_sum must be true or false"),
        ("questions = ['latents']", "unknown question 'latents'"),
        ("questions = 3", "questions must be a list"),
        ("a = [", "is not TOML"),
    ]:
        rules.write_text(text)
        result = simulate(anamorph, folder, tmp_path / "m.safetensors", "--policy", rules)
        assert expected in result.error
    result = simulate(anamorph, folder, tmp_path / "m.safetensors", "--policy", tmp_path / "no")
    assert "cannot be read" in result.error


def test_statistics_are_those_of_all_latents(anamorph, folder, policy, tmp_path):
    shared = tmp_path / "shared.safetensors"
    anamorph("fit", folder, "-o", shared, *QUICK, succeeds=True)
    table, latents_table = tmp_path / "statistics.tsv", tmp_path / "latents.tsv"
    anamorph(
        *("federation", "simulate-statistics", shared, folder, "-o", table, *policy),
        *("--participants", folder / "participants.tsv"),
        *("--group-by", "diagnosis", "--weight-by", "weight"),
        succeeds=True,
    )
    anamorph("site", "encode", shared, folder, "-o", latents_table, succeeds=True)
    latents = np.loadtxt(latents_table, skiprows=1, usecols=(1, 2), delimiter="\t")
    with open(table, newline="") as file:
        rows = {
            (row["group"], row["statistic"]): row for row in csv.DictReader(file, delimiter="\t")
        }
    numbers = np.arange(N_IMAGES)
    for group, members in (("case", numbers % 2 == 1), ("control", numbers % 2 == 0)):
        weights = (1 + numbers % 3)[members]
        mean = np.average(latents[members], axis=0, weights=weights)
        covariance = np.cov(latents[members].T, aweights=weights, ddof=0)
        row = rows[group, "mean"]
        assert int(row["n_images"]) == members.sum()
        np.testing.assert_allclose([float(row["z1"]), float(row["z2"])], mean, atol=1e-5)
        row = rows[group, "covariance_z2"]
        np.testing.assert_allclose([float(row["z1"]), float(row["z2"])], covariance[1], atol=1e-5)


def test_statistics_of_groups_that_are_too_small(anamorph, folder, tmp_path):
    shared, rules = tmp_path / "shared.safetensors", tmp_path / "policy.toml"
    anamorph("fit", folder, "-o", shared, *QUICK, succeeds=True)
    rules.write_text("minimum_images = 3")
    result = anamorph(
        *("federation", "simulate-statistics", shared, folder, "-o", tmp_path / "s.tsv"),
        *("--participants", folder / "participants.tsv", "--group-by", "diagnosis"),
        *("--policy", rules),
    )
    assert "refuses: group" in result.error
    result = anamorph(
        *("federation", "simulate-statistics", shared, folder, "-o", tmp_path / "s.tsv"),
        *("--group-by", "diagnosis", "--policy", rules),
    )
    assert "--participants" in result.error


def test_statistics_that_the_policy_does_not_list(anamorph, folder, tmp_path):
    shared, rules = tmp_path / "shared.safetensors", tmp_path / "policy.toml"
    anamorph("fit", folder, "-o", shared, *QUICK, succeeds=True)
    rules.write_text("minimum_images = 1\nquestions = ['moments']")
    command = ("federation", "simulate-statistics", shared, folder, "-o", tmp_path / "s.tsv")
    result = anamorph(*command, "--policy", rules)
    assert "question 'statistics' is not answered here; answered are moments" in result.error
    assert not (tmp_path / "s.tsv").exists()


def test_statistics_between_kits_are_asked_for_by_name(anamorph, tmp_path):
    pytest.importorskip("nvflare")
    command = ("federation", "statistics", tmp_path, "shared.safetensors", "-o", "s.tsv")
    assert "give both" in anamorph(*command, "--group-by", "diagnosis").error
    assert "give both" in anamorph(*command, "--group", "case").error
    twice = ("--group-by", "diagnosis", "--group", "case", "--group", "case")
    assert "every group once, got case, case" in anamorph(*command, *twice).error
    assert "is not a kit" in anamorph(*command).error


def test_an_audit_of_nothing(anamorph, tmp_path):
    assert "does not exist" in anamorph("site", "audit", tmp_path / "nowhere").error


def test_an_audit_log_is_verified_and_exported(anamorph, folder, policy, tmp_path):
    simulate(anamorph, folder, tmp_path / "shared.safetensors", *policy, succeeds=True)
    site, copy = tmp_path / "shared.sites" / "site1", tmp_path / "copy.jsonl"
    verified = anamorph("site", "audit", site, "--verify", "--json", succeeds=True).json
    assert verified["n_before_chain"] == 0
    head = verified["head"]
    assert head in anamorph("site", "audit", site, "--verify", succeeds=True).stdout
    anamorph("site", "audit", site, "--verify", "--head", head, succeeds=True)
    assert "give both" in anamorph("site", "audit", site, "--head", head).error
    anamorph("site", "audit", site, "--export", copy, succeeds=True)
    assert "no head beside the log" in anamorph("site", "audit", copy, "--verify").stdout
    lines = (site / "audit.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace('"step": ', '"step": 1')
    (site / "audit.jsonl").write_text("\n".join(lines) + "\n")
    assert "is broken: line 3 is not the one" in anamorph("site", "audit", site, "--verify").error
    copy.write_text("\n".join(copy.read_text().splitlines()[:-2]) + "\n")
    assert "hash" in anamorph("site", "audit", copy, "--verify", "--head", head).error


def test_a_release_check_says_what_it_found(anamorph, folder, tmp_path):
    shared, others = tmp_path / "shared.safetensors", tmp_path / "others"
    others.mkdir()
    for n, image in enumerate(blobs(12, (12, 10), seed=5)):
        save_picture(others / f"other{n}.png", (255 * image).astype(np.uint8))
    anamorph("fit", folder, "-o", shared, *QUICK, succeeds=True)
    command = ("federation", "release-check", shared, "--members", folder)
    result = anamorph(*command, "--others", others, "--json", succeeds=True).json
    assert (result["n_members"], result["n_others"]) == (N_IMAGES, 12)
    assert {attack["name"] for attack in result["attacks"]} == {"log evidence", "reconstruction"}
    assert "AUC" in result["verdict"]
    few = others / "other1.png"
    assert "at least 10 members and 10 others" in anamorph(*command, "--others", few).error


def test_private_statistics_are_noisy_and_say_so(anamorph, folder, policy, tmp_path):
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    shared, table = tmp_path / "shared.safetensors", tmp_path / "s.tsv"
    anamorph("fit", folder, "-o", shared, *QUICK, succeeds=True)
    command = ("federation", "simulate-statistics", shared, folder, "-o", table, *policy)
    result = anamorph(*command, "--epsilon", "1", succeeds=True)
    assert "epsilon 1, delta 1e-05" in result.stdout
    assert "The model itself is not" in result.stdout
    with open(table, newline="") as file:
        rows = {row["statistic"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert "mean_noise" in rows
    assert (
        "epsilon 1 of an analysis, got 3" in anamorph(*command, "--force", "--epsilon", "3").error
    )
    assert "give --epsilon too" in anamorph(*command, "--force", "--clip", "3").error


def test_what_a_federation_does_not_do_leaves_nothing_behind(anamorph, folder, policy, tmp_path):
    rules = tmp_path / "levels.toml"
    rules.write_text("levels = 2")
    result = simulate(anamorph, folder, tmp_path / "m.safetensors", *policy, "--config", rules)
    assert "--levels must be 1 in a federation" in result.error
    assert not (tmp_path / "m.sites").exists()


def test_simulate_finds_poses(anamorph, folder, policy, tmp_path):
    output, table = tmp_path / "m.safetensors", tmp_path / "latents.tsv"
    options = ("--align", "translation", "--intensity", "per image", "--iterations", "1")
    simulate(anamorph, folder, output, *policy, *options, succeeds=True)
    anamorph("site", "encode", output, folder, "-o", table, succeeds=True)
    assert table.read_text().splitlines()[0].split("\t")[-2:] == ["shift1", "shift2"]
    audit = anamorph("site", "audit", tmp_path / "m.sites" / "site1", "--json", succeeds=True)
    left = {line["question"]: line["fields"] for line in audit.json["lines"] if "fields" in line}
    assert left["match_poses"] == {"pose_sum": [2]}
