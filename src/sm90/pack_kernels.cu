#include "sm90/pack_kernels.hpp"

namespace megamoe::sm90 {
namespace {

__global__ void find_largest_scales(PackSource source, std::int64_t rows, std::int32_t* largest,
                                    float* factors) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  largest[row] = largest_scale(source, row);
  factors[row] = row_factor(largest[row]);
}

/// A block per tile; 256 threads.
__global__ void pack_tiles(PackSource source, PackedMatrix shape, const std::int32_t* largest,
                           std::byte* tiles, unsigned long long* rounded) {
  const std::int64_t row_tile = blockIdx.x / shape.column_tiles();
  const std::int64_t column_tile = blockIdx.x % shape.column_tiles();
  std::byte* tile = tiles + shape.tile_offset(row_tile, column_tile);
  std::uint32_t lost = 0;
  // 128 rows x 4 k steps x 4 places of four columns in sixteen.
  for (int i = threadIdx.x; i < kTileRows * 16; i += blockDim.x) {
    const TileCell cell{i / 16, i % 16 / 4 * 32 + i % 4 * 4};
    const std::int64_t row = row_tile * kTileRows + cell.row;
    const PackedWord packed =
        pack_word(source, row, column_tile * kTileColumns, cell, largest[row]);
    *reinterpret_cast<std::uint32_t*>(tile + word_offset(cell)) = packed.word;
    lost += packed.rounded;
  }
  for (int i = threadIdx.x; i < kTileRows * 4; i += blockDim.x) {
    const TileCell cell{i / 4, i % 4 * kScaleGroup};
    const std::int64_t row = row_tile * kTileRows + cell.row;
    tile[scale_offset(cell)] = static_cast<std::byte>(
        pack_step(source, row, column_tile * kTileColumns + cell.column, largest[row]));
  }
  if (lost > 0) atomicAdd(rounded, static_cast<unsigned long long>(lost));
}

/// A block per tile; 256 threads. Every column tile of a row tile has the same factors.
__global__ void pack_fp8_tiles(Fp8PackSource source, PackedMatrix shape, std::byte* tiles,
                               float* factors) {
  const std::int64_t row_tile = blockIdx.x / shape.column_tiles();
  const std::int64_t column_tile = blockIdx.x % shape.column_tiles();
  const std::int64_t first_row = row_tile * kTileRows;
  const std::int64_t first_column = column_tile * kTileColumns;
  std::byte* tile = tiles + shape.tile_offset(row_tile, column_tile);
  for (int i = threadIdx.x; i < kTileRows * kTileColumns / 4; i += blockDim.x) {
    const TileCell cell{i / (kTileColumns / 4), i % (kTileColumns / 4) * 4};
    *reinterpret_cast<std::uint32_t*>(tile + fp8_offset(cell)) =
        pack_fp8_word(source, first_row + cell.row, first_column, cell);
  }
  if (threadIdx.x < 4) {
    // The two scales, then padding.
    const TileCell cell{static_cast<int>(threadIdx.x % 2) * 8, 0};
    const float scale = pack_fp8_scale(source, first_row + cell.row, first_column);
    *reinterpret_cast<float*>(tile + fp8_scale_offset({0, 0}) + threadIdx.x * 4) =
        threadIdx.x < 2 ? scale : 0.0f;
  }
  if (column_tile == 0 && threadIdx.x < kTileRows) factors[first_row + threadIdx.x] = 1.0f;
}

}  // namespace

void launch_pack(const Fp8PackSource& source, const PackDestination& to) {
  const unsigned tiles = static_cast<unsigned>(to.shape.row_tiles() * to.shape.column_tiles());
  pack_fp8_tiles<<<tiles, 256>>>(source, to.shape, to.tiles, to.row_factors);
}

void launch_pack(const PackSource& source, const PackDestination& to) {
  const unsigned rows = static_cast<unsigned>(to.shape.rows);
  find_largest_scales<<<(rows + 63) / 64, 64>>>(source, rows, to.largest, to.row_factors);
  const unsigned tiles = static_cast<unsigned>(to.shape.row_tiles() * to.shape.column_tiles());
  pack_tiles<<<tiles, 256>>>(source, to.shape, to.largest, to.tiles, to.rounded);
}

}  // namespace megamoe::sm90
