"""Linear attention, counted by hand: a state of d x dv in fp32 per KV head instead of a cache."""

import pytest

from roofline.errors import InputError
from roofline.masks import CAUSAL, Mask
from roofline.plan import Plan
from roofline.variants.linear import cost
from tests.counting import grouped


def plan(form: str, chunk: int = 64) -> Plan:
    return Plan("test", chunk, chunk, 64, 32, form=form, packed=True)


STATE = 64 * 32 * 4  # d 64, dv 32


def test_useful_flops_are_2_n_d_dv_for_the_state_and_for_the_output() -> None:
    for form in ("parallel", "chunked", "recurrent"):
        counted = cost(grouped(8, 2, 64, [(512, 512)], dv=32), plan(form))
        assert counted.flops == 2 * 512 * 64 * 32 * (2 + 8)
        assert counted.exp_ops == counted.vector_ops == 0
    assert cost(grouped(1, 1, 64, [(512, 512)], CAUSAL, dv=32), plan("chunked")).flops == 2 * 2 * 512 * 64 * 32


def test_recurrent_decode_reads_and_writes_the_state() -> None:
    counted = cost(grouped(8, 2, 64, [(1, 100_000)] * 3, dv=32), plan("recurrent"))
    # Q 8 x 128 B, K 2 x 128 B, V 2 x 64 B, O 8 x 64 B and a state of 2 heads, read and written, for each of 3 sequences
    expected = 3 * (8 * 128 + 2 * 128 + 2 * 64 + 8 * 64 + 2 * 2 * STATE)
    assert counted.hbm_bytes_min == counted.hbm_bytes_cold == counted.sm_bytes == expected
    assert counted.flops == counted.flops_executed == 3 * 2 * 64 * 32 * (2 + 8)
    assert (counted.launches[0].ctas, counted.workspace_bytes) == (3 * 2, 0)


def test_the_length_of_the_past_does_not_matter_to_decode() -> None:
    short, long = (cost(grouped(8, 2, 64, [(1, n)]), plan("recurrent")) for n in (10, 10_000_000))
    assert short == long


def test_chunked_causal_stores_a_state_a_chunk() -> None:
    # 500 tokens in chunks of 64 are 8 chunks. 4 query heads on 2 KV heads.
    counted = cost(grouped(4, 2, 64, [(500, 500)], CAUSAL, dv=32), plan("chunked"))
    q, k, v, o = 4 * 500 * 128, 2 * 500 * 128, 2 * 500 * 64, 4 * 500 * 64
    states = 8 * 2 * STATE
    assert counted.hbm_bytes_min == q + k + v + o
    # K and V go into the states, and again into the outputs; the states are written and read
    assert counted.hbm_bytes_cold == counted.sm_bytes == q + 2 * (k + v) + 2 * states + o
    assert counted.workspace_bytes == states
    # whole chunks: 512 tokens of K^T V per KV head and of Q state per query head, and 64 x 64 pairs a chunk and query head
    assert counted.flops_executed == 2 * 512 * 64 * 32 * (2 + 4) + 4 * 8 * 2 * 64 * 64 * (64 + 32)


def test_chunked_without_a_mask_needs_one_state() -> None:
    counted = cost(grouped(4, 2, 64, [(500, 500)], dv=32), plan("chunked"))
    q, k, v, o = 4 * 500 * 128, 2 * 500 * 128, 2 * 500 * 64, 4 * 500 * 64
    assert counted.hbm_bytes_cold == q + k + v + o + 2 * 2 * STATE
    # every one of 8 query chunks reads the state of its KV head
    assert counted.sm_bytes == q + k + v + o + 2 * STATE + 8 * 2 * STATE
    assert counted.workspace_bytes == 2 * STATE
    assert counted.flops_executed == 2 * 512 * 64 * 32 * (2 + 4)


def test_chunked_causal_over_a_past_starts_from_its_state() -> None:
    # 128 new tokens after 1000: the past is a state, its keys are not read.
    counted = cost(grouped(2, 1, 64, [(128, 1128)], CAUSAL, dv=32), plan("chunked"))
    q, k, v, o = 2 * 128 * 128, 128 * 128, 128 * 64, 2 * 128 * 64
    assert counted.hbm_bytes_min == q + k + v + o + STATE
    assert counted.flops == 2 * 128 * 64 * 32 * (1 + 2)


def test_parallel_is_the_quadratic_form_without_a_softmax() -> None:
    counted = cost(grouped(2, 1, 64, [(256, 256)], CAUSAL, dv=32), plan("parallel"))
    # 4 q tiles run 1 + 2 + 3 + 4 kv tiles
    assert counted.flops_executed == 2 * 2 * 10 * 64 * 64 * (64 + 32)
    assert counted.flops == 2 * 256 * 64 * 32 * (1 + 2)
    assert counted.hbm_bytes_min == 256 * (2 * 128 + 128 + 64 + 2 * 64)
    assert counted.sm_bytes == 256 * 2 * (128 + 64) + 2 * 10 * 64 * (128 + 64)


def test_linear_in_n_where_softmax_attention_is_quadratic() -> None:
    short, long = (cost(grouped(4, 4, 64, [(n, n)], CAUSAL), plan("chunked")) for n in (1024, 8192))
    for name in ("flops", "flops_executed", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes"):
        assert getattr(long, name) == 8 * getattr(short, name)


@pytest.mark.parametrize("form", ["parallel", "chunked", "recurrent"])
def test_a_window_is_refused(form: str) -> None:
    with pytest.raises(InputError, match="--window"):
        cost(grouped(1, 1, 64, [(8, 8)], Mask(True, 4)), plan(form))


def test_only_sequences_with_a_past_read_its_state() -> None:
    both = cost(grouped(1, 1, 64, [(128, 128), (128, 1128)], CAUSAL, dv=32), plan("chunked"))
    (state,) = [t for t in both.launches[0].traffic if t.tensor == "state"]
    assert state.read_bytes_min == STATE
