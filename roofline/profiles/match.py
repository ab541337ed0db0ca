"""Match what a driver calls a GPU to a profile: exactly, because a prefix makes an L4 of an L40S."""

from roofline.errors import InputError
from roofline.profiles.load import headers, load, near
from roofline.profiles.profile import Profile
from roofline.units import format_iec

# Drivers report less than the module holds (a reserve; ECC takes a sixteenth of GDDR6), and profiles may hold either figure.
MEMORY_TOLERANCE = 0.10


def match(driver_name: str, memory_bytes: int | None = None) -> Profile:
    """Return the profile of the GPU that the driver calls ``driver_name`` and that has ``memory_bytes`` of memory.

    The name has to be equal to one of the profile's; the memory tells variants of one name apart, and refuses a part of another
    size that shares a name. Raises ``InputError`` with near names if no profile, or more than one, fits.
    """
    found = [load(header.id) for header in headers() if driver_name.strip() in header.driver_names]
    fitting = [profile for profile in found if memory_bytes is None or _same_memory(profile, memory_bytes)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        ids = ", ".join(profile.id for profile in fitting)
        raise InputError(f"the GPU {driver_name!r} may be any of {ids}; expected --device with one of them")
    if found and memory_bytes is not None:
        sizes = ", ".join(f"{profile.id} ({format_iec(profile.memory_bytes or 0)})" for profile in found)
        raise InputError(f"no profile for the GPU {driver_name!r} with {format_iec(memory_bytes)}; that name is {sizes}")
    raise InputError(f"no profile for the GPU {driver_name!r}; {near(driver_name)}")


def _same_memory(profile: Profile, memory_bytes: int) -> bool:
    if profile.memory_bytes is None:
        return True
    return abs(memory_bytes / profile.memory_bytes - 1) <= MEMORY_TOLERANCE
