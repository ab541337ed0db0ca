"""The loop of a run: time every group of cases, then count what was timed; each point is saved as it is made."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from roofline.errors import RooflineError
from roofline.measure import counters
from roofline.measure.cases import Case
from roofline.measure.options import Listener, Measured, Options, Progress
from roofline.measure.supervisor import Outcome, Supervisor
from roofline.measure.verdicts import complete, verdicts
from roofline.profiles.local import Gpu
from roofline.profiles.profile import Profile
from roofline.records import Record, Run, Writer, point_key

UNKNOWN_L2_BYTES = 2**26  # as large as most, so that rotating passes over it


@dataclass(slots=True)
class Loop:
    """One run that goes on in the file of ``writer``; ``run`` is what that file holds already."""

    options: Options
    gpu: Gpu
    profile: Profile
    supervisor: Supervisor
    writer: Writer
    run_so_far: Run
    listener: Listener
    notes: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    uncounted: list[tuple[Case, Record]] = field(default_factory=list)

    def run(self, groups: Sequence[Sequence[Case]]) -> Measured:
        """Measure what the file does not hold yet, and count what it holds uncounted. Ctrl-C keeps all points made."""
        known = {point_key(record.model_dump()): record for record in self.run_so_far.records}
        keys = [[(point_key(case.fields()), case) for case in group] for group in groups]
        todo = [[case for key, case in group if key not in known] for group in keys]
        earlier = [(case, known[key]) for group in keys for key, case in group if key in known]
        self.uncounted = [(case, record) for case, record in earlier if self._lacks_counters(case, record)]
        self._note_others(known.keys() - {key for group in keys for key, _ in group})
        total, interrupted = sum(map(len, todo)) + len(self.uncounted), False
        try:
            for group in todo:
                if group:
                    self._time(group, total)
            if self.uncounted:
                self._count(total)
        except KeyboardInterrupt:
            interrupted = True
        return Measured(self.writer.path, tuple(self.records.values()), tuple(self.notes), interrupted)

    def _time(self, group: Sequence[Case], total: int) -> None:
        request = {
            "op": "measure",
            "problem": group[0].fields()["problem"],
            "seed": self.options.seed,
            "uuid": self.gpu.uuid,
            "l2": self.options.l2,
            "l2_bytes": self.profile.l2_bytes or UNKNOWN_L2_BYTES,
            "rule": asdict(self.options.rule()),
        }

        def tell(index: int, stage: str) -> None:
            case = group[index]
            self.listener(Progress(len(self.records), total, f"{case.configuration.name} {case.implementation}: {stage}"))

        for outcome in self.supervisor.run(request, [case.wire() for case in group], tell):
            case = group[outcome.case]
            record = self._record(case, outcome)
            self._save(record, total)
            if self._lacks_counters(case, record):
                self.uncounted.append((case, record))

    def _lacks_counters(self, case: Case, record: Record) -> bool:
        """Whether ``record`` is to be counted: not where ``case`` would replay another plan than the one that was timed."""
        wanted = self.options.counters != "off" and (case.is_ours or self.options.count_peers)
        return wanted and record.status == "ok" and record.counters is None and record.plan == case.fields()["plan"]

    def _note_others(self, keys: Set[str]) -> None:
        if keys:
            made_by = " ".join(self.run_so_far.header.command)
            points = "1 point" if len(keys) == 1 else f"{len(keys)} points"
            self.notes.append(f"{points} of the file not asked for now; it was begun by: {made_by}")

    def _record(self, case: Case, outcome: Outcome) -> Record:
        fields = {**case.fields(), "run_id": self.run_so_far.header.run_id}
        if outcome.status != "ok":
            return Record.model_validate({**fields, "status": outcome.status, "reason": outcome.reason})
        try:
            return Record.model_validate({**fields, "status": "ok", **self._measured(case, outcome.fields["measurement"])})
        except (ValueError, KeyError) as error:  # what the worker sent is no measurement
            reason = f"the worker's answer is no measurement: {' '.join(str(error).split())[:200]}"
            return Record.model_validate({**fields, "status": "failed", "reason": reason})

    def _measured(self, case: Case, sent: Mapping[str, Any], counted: Mapping[str, Any] | None = None) -> dict[str, Any]:
        measurement = complete(sent, case, counted)
        return {"measurement": measurement, "counters": counted, "notes": verdicts(case, measurement, self.profile, counted)}

    def _save(self, record: Record, total: int) -> None:
        self.writer.append(record)
        self.records[point_key(record.model_dump())] = record
        self.listener(Progress(len(self.records), total, f"{record.configuration} {record.implementation}", record))

    def _count(self, total: int) -> None:
        """Count what was timed, now or earlier; a counted point is written again, and replaces the one before."""
        self.supervisor.stop()  # its memory is wanted, and two processes on one GPU disturb each other
        self.listener(Progress(len(self.records), total, "reading hardware counters"))
        replay = counters.Replay(self.gpu, self.profile, self.options.seed)
        todo = sorted(self.uncounted, key=lambda one: not one[0].is_ours)  # ours first
        try:
            for index, counted in replay.count([case for case, _ in todo]):
                case, record = todo[index]
                fields = record.model_dump()
                self._save(Record.model_validate({**fields, **self._measured(case, fields["measurement"], counted)}), total)
        except counters.Refused as refusal:
            if self.options.counters == "ncu":
                raise RooflineError(f"--counters ncu: {refusal}") from None
            self.notes.append(f"no hardware counters: {refusal}; bytes and FLOPs stay predicted, not counted")
        self.notes += replay.notes
