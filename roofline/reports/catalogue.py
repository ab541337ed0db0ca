"""The list of device profiles, and one profile with the source of each value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from roofline.analysis import device_dict
from roofline.profiles.profile import CEILING_UNITS, Profile
from roofline.reports.output import print_table
from roofline.units import format_iec, format_number, format_si

SCHEMA = "roofline.devices/1"


def document(listed: Sequence[Profile]) -> dict[str, Any]:
    """The profiles as other programs read them."""
    return {
        "schema": SCHEMA,
        "devices": [
            {**device_dict(profile), "driver_names": list(profile.driver_names), "notes": list(profile.notes)}
            for profile in listed
        ],
    }


def rows(listed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row per device; an unknown ceiling is an empty cell."""
    for device in listed["devices"]:
        flat = {key: value for key, value in device.items() if not isinstance(value, dict | list)}
        for roof in ("datasheet", "measured"):
            flat |= {f"{roof}_{key}": device[roof].get(key, {}).get("value") for key in CEILING_UNITS}
        yield flat


def render_all(listed: Mapping[str, Any], console: Console) -> None:
    """Print one line per device."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("device", no_wrap=True)
    for column in ("HBM", "bf16", "fp16", "ridge", "SMs", "L2", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    for device in listed["devices"]:
        hbm, bf16, fp16 = (_value(device, key) for key in ("hbm_bytes_per_s", "bf16_flop_per_s", "fp16_flop_per_s"))
        peak = bf16 or fp16
        table.add_row(
            device["id"],
            format_si(hbm, "B/s") if hbm else "-",
            format_si(bf16, "") if bf16 else "-",
            format_si(fp16, "") if fp16 else "-",
            format_number(peak / hbm) if peak and hbm else "-",
            "-" if device["sm_count"] is None else str(device["sm_count"]),
            "-" if device["l2_bytes"] is None else format_iec(device["l2_bytes"], digits=2),
            "-" if device["memory_bytes"] is None else format_iec(device["memory_bytes"]),
        )
    print_table(table, console)
    console.print(
        "bf16, fp16: FLOP/s, dense, fp32 accumulate. ridge: FLOP/B. `roofline devices NAME` gives the sources.", style="dim"
    )


def render_one(listed: Mapping[str, Any], console: Console) -> None:
    """Print every ceiling of a device with its kind and source."""
    (device,) = listed["devices"]
    console.print(f"{device['name']} ({device['id']})", style="bold", highlight=False)
    size = " ".join(
        f"{label} {text}"
        for label, text in (
            ("SMs", device["sm_count"] and str(device["sm_count"])),
            ("L2", device["l2_bytes"] and format_iec(device["l2_bytes"])),
            ("memory", device["memory_bytes"] and format_iec(device["memory_bytes"])),
        )
        if text
    )
    console.print(f"{device['architecture']}, compute capability {device['compute_capability']}; {size}", highlight=False)
    if device["driver_names"]:
        console.print(f"Driver names: {', '.join(device['driver_names'])}", highlight=False)
    for roof in ("datasheet", "measured"):
        for key, ceiling in device[roof].items():
            label = key.removesuffix("_per_s").removesuffix("_flop").removesuffix("_op").removesuffix("_bytes")
            value = format_si(ceiling["value"], CEILING_UNITS[key])
            console.print(f"  {label:<16} {value:>14}  {ceiling['kind']}", style="cyan", highlight=False)
            console.print(f"      {ceiling['source']}", style="dim", highlight=False)
    for note in device["notes"]:
        console.print(f"Note: {note}", highlight=False)


def _value(device: Mapping[str, Any], key: str) -> float | None:
    ceiling = device["measured"].get(key) or device["datasheet"].get(key)
    return float(ceiling["value"]) if ceiling else None
