"""The side of measuring that loads torch: ``python -m roofline.measure.worker`` serves requests, ``replay`` runs under ncu."""

from collections.abc import Callable

Emit = Callable[..., None]  # ``emit(event, **fields)`` sends one event to the supervisor
