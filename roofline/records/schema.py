"""The record format: what one line of a run file may say. Times are seconds, sizes bytes, rates per second, ratios 0-1.

pydantic checks the edge; inside the program a record is used as the object it is.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# History of the format. A reader accepts its own version and older ones.
#   1  header, then one point a line; status predicted | ok | wrong | unsupported | failed. A later record of the same point
#      (configuration, variant, plan form, implementation, problem) replaces an earlier one: counters are read after timing.
SCHEMA = "roofline.record/1"
SCHEMA_VERSION = int(SCHEMA.rpartition("/")[2])

Status = Literal["predicted", "ok", "wrong", "unsupported", "failed"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**60)]  # far above any count, and small enough to divide


class _Model(BaseModel):
    # Unknown fields are refused: within one version nothing is added silently, and a typo is found when it is written.
    model_config = ConfigDict(extra="forbid", frozen=True)


class CeilingField(_Model):
    """One ceiling of a profile: ``value`` in the SI base unit of its key."""

    value: Positive
    kind: Literal["datasheet", "derived", "measured"]
    source: str


class ProfileFields(_Model):
    """The device as this run saw it, with every ceiling, so that a report needs nothing but the record file."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str
    name: str
    vendor: str
    architecture: str
    compute_capability: str
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    datasheet: dict[str, CeilingField] = {}
    measured: dict[str, CeilingField] = {}


class Header(_Model):
    """The first line of a run file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_name: str = Field(default=SCHEMA, alias="schema")
    run_id: str
    created: str  # UTC, ISO 8601
    command: list[str] = []
    environment: dict[str, Any] = {}
    profile: ProfileFields


class Level(_Model):
    """One level of memory: null where the size or the ceiling is unknown."""

    bytes: NonNegative | None = None
    intensity: NonNegative | None = None
    ridge: NonNegative | None = None
    time_s: NonNegative | None = None


class Prediction(_Model):
    """What the model says of the point: the result fields of ``roofline analyze --json`` without problem and plan."""

    model_config = ConfigDict(extra="allow", frozen=True)  # the analysis may say more; it has a schema of its own

    phase: str | None = None
    roof: Literal["datasheet", "measured"] = "datasheet"
    flops: Count
    flops_executed: Count
    exp_ops: Count
    vector_ops: Count
    hbm_bytes: NonNegative | None = None
    hbm_bytes_min: Count
    hbm_bytes_cold: Count
    sm_bytes: Count
    l2_bytes: NonNegative | None = None
    levels: dict[str, Level] = {}
    intensity: NonNegative | None = None
    ridge: NonNegative | None = None
    bound: str | None = None
    time_s: NonNegative | None = None
    time_measured_roof_s: NonNegative | None = None  # from this device's measured ceilings: at most the measured time
    attainable_flop_per_s: NonNegative | None = None
    sms_used: NonNegative | None = None
    kv_cache_bytes: Count | None = None
    kv_cache_bytes_per_token: NonNegative | None = None
    kv_cache_bytes_allocated: Count | None = None
    workspace_bytes: Count = 0
    launches: list[dict[str, Any]] = []


class Times(_Model):
    """Seconds of one call: quantiles of ``samples``, which are all those kept."""

    median: Positive
    p10: Positive
    p90: Positive
    samples: list[Positive] = Field(min_length=1)


class Measurement(_Model):
    """One point timed on the device."""

    implementation: str  # roofline/<kernel> or <peer>/<backend really selected>
    time_s: Times
    method: Literal["events", "graph"]  # of each call, or of a replayed graph divided by its calls
    l2: Literal["cold", "warm"]
    discarded: Count = 0  # samples under thermal or hardware slowdown
    all_throttled: bool = False  # every sample was, so they were kept
    clock_hz: Positive | None = None  # median SM clock while the point ran
    power_w: Positive | None = None
    throttle_reasons: list[str] = []
    max_memory_bytes: Count | None = None  # inputs, output and workspace of one call
    error: NonNegative  # ||out - reference|| / ||reference||
    tolerance: Positive
    flop_per_s: NonNegative | None = None  # useful FLOPs over the median
    hbm_bytes_per_s: NonNegative | None = None  # counted bytes if counters ran, else predicted ones, over the median
    hbm_bytes_source: Literal["counted", "predicted", "minimum"] | None = None
    prefill_latency_s: Positive | None = None  # prefill: the median
    attention_tokens_per_s: Positive | None = None  # decode: new tokens over the time of attention alone, one layer
    backend_confirmed: str | None = None  # how we know which code ran


class Counters(_Model):
    """Hardware counts of one call; a count that is not available is null."""

    hbm_read_bytes: NonNegative | None = None
    hbm_write_bytes: NonNegative | None = None
    l2_bytes: NonNegative | None = None
    l2_hit_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    sm_read_bytes: NonNegative | None = None
    sm_write_bytes: NonNegative | None = None
    tensor_flops: NonNegative | None = None
    xu_instructions: NonNegative | None = None  # warp-level, exponentials among them
    hbm_peak_bytes_per_s: Positive | None = None  # DRAM pins, from the memory clock
    clock_hz: Positive | None = None
    mode: Literal["cold", "steady"]
    calls: Annotated[int, Field(gt=0)]


# What a status forbids and demands: a wrong, failed or unsupported point has no time, and says why.
_FORBIDDEN: Mapping[Status, tuple[str, ...]] = {
    "predicted": ("measurement", "counters", "reason"),
    "ok": ("reason",),
    "wrong": ("measurement", "counters"),
    "unsupported": ("measurement", "counters"),
    "failed": ("measurement", "counters"),
}
_REQUIRED: Mapping[Status, tuple[str, ...]] = {
    "predicted": ("prediction",),
    "ok": ("measurement",),
    "wrong": ("reason",),
    "unsupported": ("reason",),
    "failed": ("reason",),
}


class Record(_Model):
    """One point of a run."""

    run_id: str
    status: Status
    reason: str | None = None
    configuration: str
    variant: str
    implementation: str | None = None  # what was asked for; ``measurement.implementation`` is what ran
    problem: dict[str, Any]
    plan: dict[str, Any] | None = None
    prediction: Prediction | None = None
    measurement: Measurement | None = None
    counters: Counters | None = None
    notes: list[str] = []  # verdicts and warnings in words

    @model_validator(mode="after")
    def _gate(self) -> Self:
        """Let the status decide which fields may exist."""
        for name in _FORBIDDEN[self.status]:
            if getattr(self, name) is not None:
                raise ValueError(f"a record with status {self.status!r} has no {name}")
        for name in _REQUIRED[self.status]:
            if getattr(self, name) is None:
                raise ValueError(f"a record with status {self.status!r} needs {name}")
        return self
