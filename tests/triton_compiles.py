"""Every kernel compiles for a GPU, which takes none: what the interpreter lets pass (types that change in a loop) does not.

Run by test_attention_triton.py in a process where kernels are neither checked for shapes nor interpreted.
"""

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from thermocline.attention import EffectiveItems, Surface, kernels  # noqa: E402
from thermocline.attention.triton import _numbers  # noqa: E402

HOPPER, AMPERE = GPUTarget("cuda", 90, 32), GPUTarget("cuda", 80, 32)
HALVES, FLOATS = ("Q", "K", "V", "SHARP", "OUT"), ("ENTROPY", "BETA", "X", "PARTS", "MIXED", "TOTAL")
RULES = {"effective": EffectiveItems(2.0).form, "surface": Surface((1.0, 0.5, 0.25, 0.1, 0.2, 0.05), 2, 3.0).form}
SIZES = {
    "statistics": {"D": 128, "BD": 128, "BM": 64, "BN": 128},
    "scores": {"D": 96, "BD": 128, "BM": 16, "BN": 64},
    "mixtures": {"E": 96, "BE": 128, "BM": 16, "BN": 64, "BZ": 64},
    "gathered": {"E": 96, "BE": 128, "BM": 16, "BZ": 64},
}


def compiled(name: str, target: GPUTarget, constants: dict) -> str:
    kernel = getattr(kernels, name)
    constants = {one: value for one, value in constants.items() if one in kernel.arg_names}
    types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(HALVES, "*bf16") | dict.fromkeys(FLOATS, "*fp32")
    types |= {"bits": "fp32", **dict.fromkeys(constants, "constexpr")}
    if name == "statistics":
        types["K"] = f"tensordesc<bf16[1, 1, {constants['BN']}, {constants['BD']}]>"
    source = ASTSource(
        fn=kernel,
        signature={one: types[one] for one in kernel.arg_names},
        constexprs={(kernel.arg_names.index(one),): value for one, value in constants.items()},
    )
    return triton.compile(source, target=target, options={"num_warps": 4, "enable_fp_fusion": True}).asm["ptx"]


@pytest.mark.parametrize(("causal", "window"), [(True, 0), (False, 50)])
@pytest.mark.parametrize("name", SIZES)
def test_a_kernel_compiles(name: str, causal: bool, window: int) -> None:
    rule = _numbers(RULES["surface" if causal else "effective"])
    ptx = compiled(name, HOPPER, {**SIZES[name], "CAUSAL": causal, "WINDOW": window, "STAGES": 3, **rule})
    assert f".visible .entry {name}(" in ptx
    if name == "statistics":
        assert "wgmma" in ptx  # Hopper's own matrix product
        assert "cp.async.bulk.tensor" in ptx  # and its copy engine


def test_older_cards_too() -> None:
    rule = _numbers(RULES["effective"])
    assert "mma.sync" in compiled(
        "statistics", AMPERE, {**SIZES["statistics"], "CAUSAL": True, "WINDOW": 0, "STAGES": 3, **rule}
    )
