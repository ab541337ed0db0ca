"""Elements of 8 bits that are read in pairs, as int16, and widened to a tile of the even and a tile of the odd ones.

A pair takes the place of one 16-bit element, so a tile of pairs goes through shared memory as 16-bit tiles do: 16 bytes a copy,
``ldmatrix`` (transposed for V) to the registers of a matrix product. There one register holds two pairs of neighbours along
the product's inner dimension, and a byte permutation makes them the even and the odd operand of two such products. Without it
V is read byte by byte, since ``ldmatrix`` transposes elements of 16 bits only.
"""

import triton
import triton.language as tl


@triton.jit
def pairs(tile, FP8: tl.constexpr, TO: tl.constexpr):
    """Return the low and the high bytes of an int16 tile as two tiles in ``TO``, exactly: fp16, or bf16 for int8."""
    if FP8:
        tl.static_assert(tl.float16 == TO)
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 both;
            .reg .b16 low, high;
            prmt.b32 both, $2, 0, 0x3120;
            mov.b32 {low, high}, both;
            cvt.rn.f16x2.e4m3x2 $0, low;
            cvt.rn.f16x2.e4m3x2 $1, high;
            }""",
            "=r,=r,r", [tile], dtype=(tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip
    elif tl.float16 == TO:
        # 0x64uu is 1024 + u, and u = x + 128
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 biased, offset;
            mov.b32 offset, 0x64806480;
            xor.b32 biased, $2, 0x80808080;
            prmt.b32 $0, biased, 0x64646464, 0x4240;
            prmt.b32 $1, biased, 0x64646464, 0x4341;
            sub.rn.f16x2 $0, $0, offset;
            sub.rn.f16x2 $1, $1, offset;
            }""",
            "=&r,=&r,r", [tile], dtype=(tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip
    else:
        # bf16 has 7 bits beside the leading one: 0x4300 | the low 7 bits is 128 + them, 0x4300 | the sign bit 128 or 256
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 wide, sign, one;
            mov.b32 one, 0x3f803f80;
            prmt.b32 wide, $2, 0x43434343, 0x4240;
            lop3.b32 sign, wide, 0xff80ff80, 0x80008000, 0x6a;
            and.b32 wide, wide, 0xff7fff7f;
            fma.rn.bf16x2 $0, wide, one, sign;
            prmt.b32 wide, $2, 0x43434343, 0x4341;
            lop3.b32 sign, wide, 0xff80ff80, 0x80008000, 0x6a;
            and.b32 wide, wide, 0xff7fff7f;
            fma.rn.bf16x2 $1, wide, one, sign;
            }""",
            "=&r,=r,r", [tile], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=2,
        )  # fmt: skip
