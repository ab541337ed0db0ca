from roofline.records import Record, fastest_backends
from tests.records.example import measurement, record


def timed(implementation: str, median: float, **changed: object) -> Record:
    return record(implementation=implementation, measurement=measurement(median), **changed)


def test_of_each_peer_the_fastest_backend_stays_and_all_of_ours() -> None:
    ours = [timed("roofline/flash", 1.0), timed("roofline/naive", 9.0)]
    torch = [timed("torch/flash", 3.0), timed("torch/cudnn", 2.0), timed("torch/math", 8.0)]
    fa3, wrong = (
        timed("fa3/fwd", 1.5),
        record(implementation="flashinfer/prefill", status="wrong", reason="x", measurement=None),
    )
    assert fastest_backends([*ours, *torch, fa3, wrong]) == [*ours, torch[1], fa3]


def test_another_problem_is_another_choice() -> None:
    longer = {**record().problem, "q_len": 2048, "kv_len": 2048}
    records = [timed("torch/flash", 3.0), timed("torch/cudnn", 2.0), timed("torch/flash", 1.0, problem=longer)]
    assert fastest_backends(records) == records[1:]
