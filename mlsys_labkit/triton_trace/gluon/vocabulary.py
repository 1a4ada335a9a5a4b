"""The names of Gluon that a kernel may use, by module: without Blackwell's tensor memory and AMD's modules."""

from __future__ import annotations

GLUON = "triton.experimental.gluon"
LANGUAGE = f"{GLUON}.language"
NVIDIA = f"{LANGUAGE}.nvidia"


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


LAYOUTS = _set("""
    AutoLayout BlockedLayout CoalescedLayout DistributedLinearLayout DotOperandLayout NVMMADistributedLayout
    NVMMASharedLayout PaddedSharedLayout SharedLinearLayout SliceLayout SwizzledSharedLayout
""")
KINDS = _set("shared_memory_descriptor distributed_type shared_memory_descriptor_type")
BLACKWELL_KINDS = _set("TensorMemoryLayout TensorMemoryScalesLayout tensor_memory_descriptor")  # for isinstance only
_MATH = _set("abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi")
_LANGUAGE = (
    _MATH
    | LAYOUTS
    | KINDS
    | _set("""
    add allocate_shared_memory arange associative_scan assume atomic_add atomic_and atomic_cas atomic_max atomic_min
    atomic_or atomic_xchg atomic_xor bank_conflicts barrier bfloat16 broadcast cast cdiv constexpr convert_layout
    device_assert device_print dot_fma expand_dims float16 float32 float64 float8e4nv float8e5 full full_like gather
    histogram inline_asm_elementwise int1 int16 int32 int64 int8 join load map_elementwise max max_constancy
    max_contiguous maximum min minimum mul multiple_of num_ctas num_programs num_warps permute pointer_type program_id
    ravel reduce reduce_or reshape set_auto_layout split static_assert static_print static_range store sub sum tensor
    to_linear_layout to_tensor tuple uint16 uint32 uint64 uint8 warp_specialize where xor_sum zeros zeros_like
""")
)
_COPY = _set("async_copy_global_to_shared commit_group mbarrier_arrive wait_group")
_BARRIER = _set("MBarrierLayout allocate_mbarrier arrive expect init invalidate wait")
_TMA = _set("""
    async_copy_global_to_shared async_copy_shared_to_global make_tensor_descriptor store_wait tensor_descriptor
""")
_AMPERE = _set("async_copy mbarrier mma_v2")
_HOPPER = _AMPERE | _set("""
    fence_async_shared tma warpgroup_mma warpgroup_mma_accumulator warpgroup_mma_init warpgroup_mma_wait
""")
MODULES = {
    GLUON: _set("language"),
    LANGUAGE: _LANGUAGE | _set("nvidia"),
    NVIDIA: _set("ampere hopper blackwell"),
    f"{NVIDIA}.ampere": _AMPERE,
    f"{NVIDIA}.ampere.async_copy": _COPY,
    f"{NVIDIA}.ampere.mbarrier": _BARRIER,
    f"{NVIDIA}.hopper": _HOPPER,
    f"{NVIDIA}.hopper.mbarrier": _BARRIER,
    f"{NVIDIA}.hopper.tma": _TMA,
    f"{NVIDIA}.blackwell": _AMPERE | BLACKWELL_KINDS | _set("fence_async_shared tma"),
    f"{NVIDIA}.blackwell.tma": _TMA,
}
MEMBERS = _set("""
    _keep_alive _reinterpret alloc_shape bit_length block_type cga_layout dim element_bitwidth get_default_for index
    instr_shape k_width layout max_phase multicta nbytes nbytes_per_cta order parent per_phase rank size_per_thread
    slice swizzle_byte_width threads_per_warp transposed two_ctas vec version warps_per_cta with_identity_for
""")
ABSENT = "tensor memory and tcgen05 need a Blackwell GPU and are not interpreted"
