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

}  // namespace

void launch_pack(const PackSource& source, const PackDestination& to) {
  const unsigned rows = static_cast<unsigned>(to.shape.rows);
  find_largest_scales<<<(rows + 63) / 64, 64>>>(source, rows, to.largest, to.row_factors);
  const unsigned tiles = static_cast<unsigned>(to.shape.row_tiles() * to.shape.column_tiles());
  pack_tiles<<<tiles, 256>>>(source, to.shape, to.largest, to.tiles, to.rounded);
}

}  // namespace megamoe::sm90
