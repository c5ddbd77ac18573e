"""Finding 5: "all" less "control" gave the latents of the one other patient. Now it is refused.

The coordinator is hostile: it asks for whatever groups it likes, on different days, under different
names. The sites are unmodified.
"""

import numpy as np
import pytest

from anamorph.federation import FederationError, Policy, federated_statistics
from tests.federation import conftest
from tests.federation.conftest import stack

N_IMAGES, N_SITES = 36, 3
POLICY = Policy(minimum_images=3)
# Dealt out in turn, every site has 12 images. The one case is at site1; "a" and "b" halve each
# site, and "c" is "a" with one more image of site2.
DIAGNOSIS = ["case" if n == 0 else "control" for n in range(N_IMAGES)]
HALF = ["a" if n < N_IMAGES // 2 else "b" for n in range(N_IMAGES)]
NEARLY = ["c" if n < N_IMAGES // 2 or n == 19 else "d" for n in range(N_IMAGES)]


@pytest.fixture
def transport(tmp_path):
    columns = {"diagnosis": DIAGNOSIS, "half": HALF, "nearly": NEARLY}
    return conftest.sites(tmp_path, POLICY, n_images=N_IMAGES, n_sites=N_SITES, columns=columns)


@pytest.fixture
def fitted(transport):
    return conftest.fit(transport, n_iter=1)[0]


def ask(fitted, transport, groups=("all",), column=None):
    return federated_statistics(fitted, transport, transport.names, groups, group_by=column)


def refusals(tmp_path, site):
    return [
        line
        for line in (tmp_path / site / "audit.jsonl").read_text().splitlines()
        if '"refused"' in line
    ]


def test_the_difference_would_be_the_latents_of_one_patient(fitted):
    """What the attack got: no more than two means and two sizes."""
    latents = fitted.transform(stack(N_IMAGES))
    everybody, controls = latents.mean(axis=0), latents[1:].mean(axis=0)
    stolen = N_IMAGES * everybody - (N_IMAGES - 1) * controls
    np.testing.assert_allclose(stolen, latents[0], atol=1e-9)


def test_all_less_control_is_refused_and_logged(fitted, transport, tmp_path):
    assert ask(fitted, transport)[0].n_images == N_IMAGES
    with pytest.raises(FederationError, match=r"site1 refuses: these groups, with all images"):
        ask(fitted, transport, ["control"], "diagnosis")
    assert len(refusals(tmp_path, "site1")) == 1
    assert "TooFewImagesError" in refusals(tmp_path, "site1")[0]


def test_control_alone_is_refused_too_since_the_fit_told_the_total(fitted, transport):
    with pytest.raises(FederationError, match="site1 refuses"):
        ask(fitted, transport, ["control"], "diagnosis")


def test_groups_of_another_day_that_differ_by_one_image_are_refused(fitted, transport, tmp_path):
    assert [group.n_images for group in ask(fitted, transport, ["a", "b"], "half")] == [18, 18]
    assert [group.n_images for group in ask(fitted, transport, ["b"], "half")] == [18]
    with pytest.raises(FederationError, match=r"site2 refuses: these groups, with all images"):
        ask(fitted, transport, ["c"], "nearly")
    # The site remembers after a restart.
    columns = {"diagnosis": DIAGNOSIS, "half": HALF, "nearly": NEARLY}
    again = conftest.sites(tmp_path, POLICY, n_images=N_IMAGES, n_sites=N_SITES, columns=columns)
    with pytest.raises(FederationError, match="site2 refuses"):
        ask(fitted, again, ["c"], "nearly")


def test_another_model_does_not_make_another_group(fitted, transport):
    ask(fitted, transport, ["a"], "half")
    other, _ = conftest.fit(transport, n_iter=2)
    with pytest.raises(FederationError, match="site2 refuses"):
        ask(other, transport, ["c"], "nearly")
