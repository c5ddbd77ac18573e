"""What can be wrong with the device that kernels are to run on."""


class DeviceError(RuntimeError):
    """A GPU was asked for that is not there, or is too small."""
