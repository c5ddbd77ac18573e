"""One report that tests look at."""

import pytest

from anamorph.report import write_report
from tests.report.reports import N, latents, random_model


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Return the path of a full report with texts that are no tags and no formulas."""
    model, images = random_model()
    path = tmp_path_factory.mktemp("report") / "report.html"
    evil = r"<script>alert('&')</script> $\frac"
    result = write_report(
        model,
        path,
        images=images,
        latents=latents(),
        names=[f"{evil} {n}" for n in range(N)],
        labels=[evil, "b"] * (N // 2),
        label_name=evil,
        title=evil,
    )
    assert result == path
    return path
