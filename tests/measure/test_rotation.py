import pytest

pytest.importorskip("torch")
pytest.importorskip("roofline.kernels.protocol")

from roofline.measure.worker.rotation import MOST_SETS, set_count

pytestmark = pytest.mark.kernels
MIB = 2**20


@pytest.mark.parametrize(
    ("touched", "sets"),
    [(600 * MIB, 1), (480 * MIB, 1), (400 * MIB, 2), (60 * MIB, 4), (10 * MIB, 24), (1, MOST_SETS), (0, MOST_SETS)],
)
def test_sets_rotate_over_four_times_the_l2(touched: int, sets: int) -> None:
    assert set_count(touched, 60 * MIB) == sets
