// c = a · b in half precision with CUTLASS: Hopper's own matrix instructions, fed by its bulk copies. N and K are
// multiples of 8. Pointers that are not const are outputs.
#include <cstdio>
#include <cstdlib>

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

using Element = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
constexpr int kAlignment = 8;  // elements in the 16 bytes that a bulk copy moves at least

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, kAlignment, Element, Row, kAlignment,
    cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, kAlignment, Element, Row, kAlignment, float, Tile,
    Cluster, cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

extern "C" void solve(const cutlass::half_t* a, const cutlass::half_t* b, cutlass::half_t* c, int M, int N,
                      int K) {
    const auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, cute::make_shape(M, K, 1));
    const auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, cute::make_shape(N, K, 1));
    const auto stride_c = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, cute::make_shape(M, N, 1));
    typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                       {M, N, K, 1},
                                       {a, stride_a, b, stride_b},
                                       {{1.0f, 0.0f}, nullptr, {}, c, stride_c}};
    Gemm gemm;
    const cutlass::Status status = gemm(arguments);
    if (status != cutlass::Status::kSuccess) {
        std::fprintf(stderr, "CUTLASS: %s\n", cutlassGetStatusString(status));
        std::abort();
    }
}
