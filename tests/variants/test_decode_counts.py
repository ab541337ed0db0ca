"""What the decode kernels ask for beside Q, K, V and O, counted by hand."""

from roofline.dtypes import DTYPES
from roofline.masks import CAUSAL
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem, ragged, uniform
from roofline.variants import linear, paged, split_kv

BF16 = DTYPES["bf16"]
PLAN = Plan("roofline/paged", 64, 64, 128, 128, splits=3, packed=True)


def _read(cost: paged.Cost, tensor: str) -> int:
    return sum(traffic.sm_read_bytes for launch in cost.launches for traffic in launch.traffic if traffic.tensor == tensor)


def test_workspace_starts_each_row_of_log_sum_exps_on_a_sector() -> None:
    problem = Problem(4, GroupedKV(2, 128, 128), uniform(2, 1, 640), dtype=BF16)
    cost = split_kv.cost(problem, PLAN)
    assert cost.workspace_bytes == 2 * 4 * (3 * 128 * 4 + 32)  # 8 rows: 3 partials of 128 fp32, 3 exponents in one sector
    assert _read(cost, "partial_LSE") == 8 * 32


def test_page_table_is_read_in_sectors_of_a_split() -> None:
    # 10 tiles in 3 splits of 4, 4 and 2: 256, 256 and 128 keys
    for page_size, whole, last in ((1, 1024, 512), (16, 64, 32), (64, 32, 32), (256, 32, 32)):
        problem = Problem(4, GroupedKV(2, 128, 128), uniform(2, 1, 640), dtype=BF16, page_size=page_size)
        assert _read(paged.cost(problem, PLAN), "page_table") == 2 * 2 * (2 * whole + last)


def test_chunks_of_linear_attention_are_those_of_the_queries() -> None:
    plan = Plan("roofline/linear", 64, 64, 64, 64, form="chunked", packed=True)
    # 200 queries, 100 keys: keys belong to queries 100 to 199, in the chunks that start at 64, 128 and 192
    cost = linear.cost(Problem(1, GroupedKV(1, 64, 64), uniform(1, 200, 100), CAUSAL), plan)
    assert cost.workspace_bytes == 3 * 64 * 64 * 4
    none = linear.cost(Problem(1, GroupedKV(1, 64, 64), ragged([(100, 0), (64, 64)]), CAUSAL), plan)
    assert none.workspace_bytes == 64 * 64 * 4


def test_recurrent_adds_only_keys_that_exist() -> None:
    plan = Plan("roofline/linear", 64, 64, 64, 64, form="recurrent", packed=True)
    cost = linear.cost(Problem(2, GroupedKV(1, 64, 64), ragged([(4, 1), (2, 9)]), CAUSAL), plan)
    assert _read(cost, "K") == (1 + 2) * 64 * 2
    assert _read(cost, "Q") == (4 + 2) * 2 * 64 * 2
