"""A GPU to test with: a real one where there is one, else the simulated one, for tiny images."""

import pytest

from tests import simulated_device


def _has_gpu():
    """Tell whether there is a GPU that CuPy can use."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:
        return False


HAS_GPU = _has_gpu()  # before one is simulated


@pytest.fixture(scope="module")
def gpu():
    """Return CuPy, or what stands for it."""
    if HAS_GPU:
        import cupy

        yield cupy
    else:
        yield simulated_device.install()
        simulated_device.uninstall()


@pytest.fixture(scope="module")
def real_gpu():
    """Return CuPy, where there is a GPU."""
    if not HAS_GPU:
        pytest.skip("no GPU: these tests need a real one")
    import cupy

    return cupy
