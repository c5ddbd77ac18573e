"""Errors about the device that kernels run on."""


class DeviceError(RuntimeError):
    """The GPU that was asked for does not exist or is too small."""
