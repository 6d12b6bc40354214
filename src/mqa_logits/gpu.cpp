// The MQA logits on a Hopper GPU: arguments to tensor maps and a launch.
#include <array>
#include <type_traits>

#include <cuda.h>

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "device/driver.hpp"
#include "mqa_logits/arguments.hpp"
#include "mqa_logits/sm90/kernels.hpp"

namespace megamoe {
namespace mqa {

const void* kernel_of(const KernelShape& shape) {
  switch (shape.head_dim) {
    case 32:
      return shape.f16() ? kernel_dim_32_f16(shape.heads) : kernel_dim_32_f32(shape.heads);
    case 64:
      return shape.f16() ? kernel_dim_64_f16(shape.heads) : kernel_dim_64_f32(shape.heads);
    default:
      return shape.f16() ? kernel_dim_128_f16(shape.heads) : kernel_dim_128_f32(shape.heads);
  }
}

namespace {

using EncodeTiled = std::remove_pointer_t<decltype(&cuTensorMapEncodeTiled)>;

EncodeTiled* encode_tiled() {
  static EncodeTiled* const kFunction =
      device::driver_function<EncodeTiled>("cuTensorMapEncodeTiled", 12000);
  if (kFunction == nullptr) {
    fail(ErrorCode::unsupported,
         "the CUDA driver has no cuTensorMapEncodeTiled: a driver of CUDA 12.0 or later is wanted");
  }
  return kFunction;
}

/// A tensor whose first dimension is contiguous, and the box that one copy takes of it.
template <std::size_t kDimensions>
struct Tensor {
  CUtensorMapDataType type;
  const void* data;
  std::array<cuuint64_t, kDimensions> sizes;
  std::array<cuuint64_t, kDimensions - 1> strides_bytes;
  std::array<cuuint32_t, kDimensions> box;
  CUtensorMapSwizzle swizzle;
  CUtensorMapFloatOOBfill outside;
};

template <std::size_t kDimensions>
CUtensorMap make_map(const Tensor<kDimensions>& tensor, const char* name) {
  check_argument(reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0,
                 "{} is not aligned to 16 bytes", name);
  std::array<cuuint32_t, kDimensions> steps;
  steps.fill(1);
  CUtensorMap map{};
  const CUresult status = encode_tiled()(
      &map, tensor.type, kDimensions, const_cast<void*>(tensor.data), tensor.sizes.data(),
      tensor.strides_bytes.data(), tensor.box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, tensor.outside);
  device::check(status, fmt::format("describing {} to the copy engine", name));
  return map;
}

CUtensorMapSwizzle swizzle_of(std::int64_t head_dim) {
  return head_dim == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : head_dim == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                          : CU_TENSOR_MAP_SWIZZLE_32B;
}

constexpr int padded_heads(std::int64_t heads) {
  return heads <= 16 ? 16 : heads <= 32 ? 32 : 64;
}

KernelShape shape_of(const MqaQueries& queries) {
  return {static_cast<int>(queries.head_dim), padded_heads(queries.heads), queries.weight_format};
}

CUtensorMap query_map(const MqaQueries& queries) {
  const KernelShape shape = shape_of(queries);
  const auto dim = static_cast<cuuint64_t>(queries.head_dim);
  const auto heads = static_cast<cuuint64_t>(queries.heads);
  return make_map<3>({CU_TENSOR_MAP_DATA_TYPE_UINT8,
                      queries.q,
                      {dim, heads, static_cast<cuuint64_t>(queries.rows)},
                      {dim, dim * heads},
                      {static_cast<cuuint32_t>(dim), static_cast<cuuint32_t>(shape.heads),
                       static_cast<cuuint32_t>(shape.group_rows())},
                      swizzle_of(queries.head_dim),
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
                     "q");
}

/// Keys and their scales: `blocks` pieces of `keys` each.
struct KeyTensors {
  const std::byte* values;
  const std::byte* scales;
  std::int64_t keys;
  std::int64_t blocks;
  std::int64_t values_stride_bytes;
  std::int64_t scales_stride_bytes;
};

void set_key_maps(Params& params, const KeyTensors& keys, std::int64_t head_dim) {
  const auto dim = static_cast<cuuint64_t>(head_dim);
  const auto count = static_cast<cuuint64_t>(keys.keys);
  const auto blocks = static_cast<cuuint64_t>(keys.blocks);
  params.kv = make_map<3>({CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           keys.values,
                           {dim, count, blocks},
                           {dim, static_cast<cuuint64_t>(keys.values_stride_bytes)},
                           {static_cast<cuuint32_t>(dim), kHalfKeys, 1},
                           swizzle_of(head_dim),
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
                          "kv");
  params.scales = make_map<2>({CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                               keys.scales,
                               {count, blocks},
                               {static_cast<cuuint64_t>(keys.scales_stride_bytes)},
                               {kHalfKeys, 1},
                               CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA},
                              "kv_scales");
}

Params common_params(const MqaQueries& queries, const MqaLogitsOutput& output) {
  check_argument(queries.rows <= 0x7FFF'FFFF, "rows is {}: at most 2^31 - 1 in a call on the GPU",
                 queries.rows);
  Params params{};
  params.q = query_map(queries);
  params.weights = queries.weights;
  params.logits = output.logits;
  params.row_stride = output.row_stride;
  params.rows = static_cast<std::int32_t>(queries.rows);
  params.heads = static_cast<std::int32_t>(queries.heads);
  params.next_n = 1;
  params.sequence_blocks = 1;
  params.format = output.format;
  params.outside = output.outside;
  return params;
}

std::int64_t shared_bytes(const KernelShape& shape) {
  const auto of = [](auto dim) {
    return static_cast<std::int64_t>(
        sizeof(SharedMemory<KernelShape{decltype(dim)::value, 64, MqaWeightFormat::f32}>));
  };
  switch (shape.head_dim) {
    case 32:
      return of(std::integral_constant<int, 32>());
    case 64:
      return of(std::integral_constant<int, 64>());
    default:
      return of(std::integral_constant<int, 128>());
  }
}

void launch(const KernelShape& shape, Params& params, void* stream) {
  const void* kernel = kernel_of(shape);
  const std::int64_t bytes = shared_bytes(shape);
  device::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)),
                "preparing the kernel of the MQA logits (it needs compute capability 9.0)");
  void* arguments[] = {&params};
  device::check(
      cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(device::multiprocessors())),
                       dim3(static_cast<unsigned>(shape.threads())), arguments,
                       static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "launching the kernel of the MQA logits");
}

}  // namespace
}  // namespace mqa

void mqa_logits_on_gpu(const MqaLogitsInput& input, const MqaLogitsOutput& output, void* stream) {
  using namespace mqa;
  validate(input, output);
  const MqaQueries& queries = input.queries;
  if (queries.rows == 0 || input.keys == 0) return;
  const KernelShape shape = shape_of(queries);
  Params params = common_params(queries, output);
  set_key_maps(params,
               {.values = input.kv,
                .scales = reinterpret_cast<const std::byte*>(input.kv_scales),
                .keys = input.keys,
                .blocks = 1,
                .values_stride_bytes = input.keys * queries.head_dim,
                .scales_stride_bytes = round_up(input.keys * 4, 16)},
               queries.head_dim);
  params.begins = input.begins;
  params.ends = input.ends;
  params.columns = static_cast<std::int32_t>(input.keys);
  params.row_blocks = static_cast<std::int32_t>(ceil_div(queries.rows, shape.block_rows()));
  launch(shape, params, stream);
}

void mqa_logits_on_gpu(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output,
                       void* stream) {
  using namespace mqa;
  validate(input, output);
  const MqaQueries& queries = input.queries;
  if (queries.rows == 0 || input.max_context == 0) return;
  check_argument(input.blocks > 0, "the cache has no blocks: at least one is wanted on the GPU");
  const KernelShape shape = shape_of(queries);
  Params params = common_params(queries, output);
  const std::int64_t block_bytes = kMqaBlockKeys * (queries.head_dim + 4);
  set_key_maps(params,
               {.values = input.cache,
                .scales = input.cache + kMqaBlockKeys * queries.head_dim,
                .keys = kMqaBlockKeys,
                .blocks = input.blocks,
                .values_stride_bytes = block_bytes,
                .scales_stride_bytes = block_bytes},
               queries.head_dim);
  params.contexts = input.context_lengths;
  params.lengths = input.lengths;
  params.block_table = input.block_table;
  params.max_blocks = input.max_blocks;
  params.columns = static_cast<std::int32_t>(input.max_context);
  params.next_n = static_cast<std::int32_t>(input.next_n);
  params.sequence_blocks = static_cast<std::int32_t>(ceil_div(input.next_n, shape.block_rows()));
  params.row_blocks = static_cast<std::int32_t>(input.sequences * params.sequence_blocks);
  launch(shape, params, stream);
}

void mqa_logits_on_gpu(const MqaLogitsInput& input, const MqaChunkBuffer& buffer,
                       const MqaChunkConsumer& consumer, void* stream) {
  mqa::validate(input, buffer.output);
  mqa::for_each_chunk(input, buffer, [&](const MqaLogitsInput& part, const MqaChunk& chunk) {
    mqa_logits_on_gpu(part, buffer.output, stream);
    consumer(chunk);
  });
}

}  // namespace megamoe
