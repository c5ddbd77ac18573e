"""``anamorph quality`` finds a scan that is the wrong way round."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from tests.images.filemaking import save_nifti


@pytest.mark.slow
def test_volumes_are_turned_in_three_planes(anamorph, tmp_path):
    """A volume whose header calls front back is found by the command."""
    draws = np.random.default_rng(0)
    axes = np.indices((14, 16, 12))
    folder = tmp_path / "scans"
    folder.mkdir()
    for n in range(12):
        y = (axes[1] - 8 - draws.normal(0, 0.2)) / 6
        x, z = (axes[0] - 7) / (4 + y), (axes[2] - 6) / (4 - y)
        volume = gaussian_filter((x**2 + y**2 + z**2 < 1) * (1 + 0.3 * y), 0.7).astype("f4")
        volume = volume[:, ::-1] if n == 5 else volume
        save_nifti(folder / f"sub-{n:02}.nii.gz", np.ascontiguousarray(volume), np.eye(4))
    model = tmp_path / "m.safetensors"
    anamorph("fit", folder, "-o", model, "-k", "2", "--iterations", "2", succeeds=True)
    result = anamorph(
        *("quality", model, folder, "-o", tmp_path / "q.html", "--table", tmp_path / "q.tsv"),
        succeeds=True,
    )
    assert "sub-05: flipped: with back and front exchanged" in result.stdout
    assert (tmp_path / "q.tsv").read_text().splitlines()[1].startswith("sub-05")
