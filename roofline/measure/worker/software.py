"""What the worker process runs on, told by torch itself."""

from typing import Any

import torch
import triton

from roofline.measure.gpu import WORKS_WITHOUT


def missing() -> str | None:
    """Return what is missing to measure here, or ``None``."""
    if not torch.cuda.is_available():
        built = "torch was built without CUDA" if torch.version.cuda is None else "torch sees no CUDA device"
        return f"no usable GPU: {built}; {WORKS_WITHOUT}"
    return None


def describe() -> dict[str, Any]:
    """Return versions, and the device as torch sees it; all of it goes into the header of the run."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "device_name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "shared_memory_per_sm_bytes": properties.shared_memory_per_multiprocessor,
        "shared_memory_per_block_bytes": getattr(properties, "shared_memory_per_block_optin", None),
    }
