"""Choose the devices of JAX before it starts: `--device` and `--devices`."""

import dataclasses
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trellis.config import TrainConfig

DeviceKind = Literal["cpu", "gpu", "tpu"]
"""Kinds of devices that JAX knows."""
VIRTUAL = "--xla_force_host_platform_device_count"
"""Option of XLA for the number of virtual devices of a CPU."""


def choose_devices(kind: DeviceKind | None, count: int | None) -> None:
    """Choose the kind and the number of devices, before JAX is used for the first time.

    A CPU becomes as many virtual devices as are asked for. `require_device` starts JAX.

    Raises:
        ValueError: The number is invalid.
    """
    if count is not None and count < 1:
        raise ValueError(f"devices must be at least 1, got {count}")
    if kind is not None:
        os.environ["JAX_PLATFORMS"] = kind
    if count is not None and kind != "gpu" and kind != "tpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if VIRTUAL not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} {VIRTUAL}={count}".strip()


def require_device(kind: DeviceKind | None) -> None:
    """Start JAX on the chosen kind of device; None leaves the choice and the start to JAX.

    Call it after `choose_devices`, and after the number of threads is set: XLA reads both once.

    Raises:
        ValueError: There is no device of this kind, or JAX already uses another.
    """
    if kind is None:
        return
    import jax

    try:
        jax.config.update("jax_platforms", kind)
        found = jax.devices()[0].platform
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"JAX finds no {kind} here; install the JAX of this device, or use --device cpu"
        ) from error
    if found != kind:
        raise ValueError(f"JAX already uses the {found}; start a new process for --device {kind}")


def describe_devices(kind: DeviceKind | None, count: int | None) -> str:
    """Return which devices a run uses, or an empty text for the CPU that nobody asked for."""
    import jax

    first = jax.devices()[0]
    if kind is None and count is None and first.platform == "cpu":
        return ""
    several = count is not None and count > 1
    if first.platform == "cpu":
        return f"Devices: {count} virtual CPUs" if several else "Device: CPU"
    name = f"{first.platform.upper()} ({first.device_kind})"
    return f"Devices: {count} × {name}" if several else f"Device: {name}"


def require_shards(config: "TrainConfig", devices: int | None) -> None:
    """Raise if devices are asked for and the method has no shards to put on them."""
    if devices is not None and config.step.is_search:
        raise ValueError(
            f"--devices and --method {config.step.method} exclude each other; leave out --devices"
        )


def with_shards(
    config: "TrainConfig", devices: int | None, chosen: Collection[str]
) -> "TrainConfig":
    """Return settings with one shard per device, unless the user chose the number of shards."""
    require_shards(config, devices)
    if devices is None or not {"shards", "sampling.shards"}.isdisjoint(chosen):
        return config
    sampling = dataclasses.replace(config.sampling, shards=devices)
    return dataclasses.replace(config, sampling=sampling)
