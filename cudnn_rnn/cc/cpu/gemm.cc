#include "cudnn_rnn/cc/cpu/gemm.h"

#include <algorithm>

namespace cudnn_rnn {
namespace {

// A work item computes kItemRows rows by kItemPanels panels of c, one k-block at a time. The item's
// block of a, at most 192 KiB (704 if rounded already), stays in the L2 cache while the item's
// panels are multiplied with it.
constexpr int64_t kItemRows = kMaxRowsOfPackedTiles;
constexpr int64_t kRoundedItemRows = 512;  // if `a` is rounded already
// Terms per chain if has_long_sums. The chains of a k-block are added up before c is updated.
constexpr int64_t kShortChain = 96;

// Returns the distance between rows of a copied block: an odd number of cache lines, so that rows
// are spread over the sets of the L1 cache.
template <typename T>
constexpr int64_t CopyRowStride() {
  return MaxDepthBlock<T>() + 64 / static_cast<int64_t>(sizeof(T));
}

// Returns whether to copy a block of `a` first: its rows would compete for few sets of the L1 cache
// (64 sets, which repeat every 4 KiB), or it is not contiguous in depth.
template <typename T>
bool NeedsCopy(const StridedMatrix<T>& a) {
  return a.column_stride != 1 || a.row_stride * static_cast<int64_t>(sizeof(T)) % 1024 == 0;
}

// Copies a block of `a` to `copy`: [rows, CopyRowStride] if it is contiguous in depth, otherwise
// [depth, kItemRows].
template <typename T>
void CopyBlock(int64_t rows, Factors<T>* factors, T* copy) {
  if (factors->a_depth_stride == 1) {
    for (int64_t m = 0; m < rows; ++m) {
      std::copy_n(factors->a + m * factors->a_row_stride, factors->depth,
                  copy + m * CopyRowStride<T>());
    }
    factors->a_row_stride = CopyRowStride<T>();
  } else {
    for (int64_t k = 0; k < factors->depth; ++k) {
      std::copy_n(factors->a + k * factors->a_depth_stride, rows, copy + k * kItemRows);
    }
    factors->a_depth_stride = kItemRows;
  }
  factors->a = copy;
}

// The k-blocks of a product, nearly equal. They begin at multiples of depth_multiple.
struct DepthBlocks {
  DepthBlocks(const KernelTraits& kernels, int64_t depth)
      : depth(depth), multiple(std::max<int64_t>(2, kernels.depth_multiple)) {
    count = std::max<int64_t>(1, (depth + kernels.depth_block - 1) / kernels.depth_block);
  }
  int64_t FirstDepth(int64_t block) const {
    return std::min(depth, (depth + multiple - 1) / multiple * block / count * multiple);
  }

  int64_t depth;
  int64_t multiple;
  int64_t count;
};

// One plane of a rounded block; see RoundedRowStride.
constexpr int64_t kRoundedPlane = (MaxDepthBlock<float>() + 32) * kItemRows;

// Memory for a block of a left operand, copied or rounded.
template <typename T>
union LeftBlock {
  alignas(64) T copy[CopyRowStride<T>() * kItemRows];
  alignas(64) uint16_t rounded[kMaxPlanes * kRoundedPlane];
};

// Brings the left operand of a block into the form that the kernels read fast.
template <typename T>
void PrepareLeft(const Kernels<T>& kernels, const MatrixProduct<T>& product, int64_t rows,
                 Factors<T>* factors, LeftBlock<T>* block) {
  if (!kernels.rounds()) {
    if (NeedsCopy(product.a)) CopyBlock(rows, factors, block->copy);
    return;
  }
  factors->rounded_a = {block->rounded, RoundedRowStride(factors->depth), kRoundedPlane};
  kernels.round_rows({factors->a, factors->a_row_stride, factors->a_depth_stride}, rows,
                     factors->depth, PaddedDepth(kernels, factors->depth), factors->rounded_a);
}

// Computes rows x panels [first_panel, end_panel) of the product over one k-block.
template <typename T>
void MultiplyBlock(const Kernels<T>& kernels, const MatrixProduct<T>& product, int64_t first_row,
                   int64_t rows, int64_t first_panel, int64_t end_panel, int64_t first_depth,
                   int64_t depth) {
  LeftBlock<T> block;
  ProductTile<T> tile = ProductTile<T>();
  tile.factors.depth = depth;
  tile.factors.a =
      product.a.data + first_row * product.a.row_stride + first_depth * product.a.column_stride;
  tile.factors.a_row_stride = product.a.row_stride;
  tile.factors.a_depth_stride = product.a.column_stride;
  if (product.rounded_a.data != nullptr) {
    tile.factors.rounded_a = product.rounded_a.At(first_row, first_depth);
  } else {
    PrepareLeft(kernels, product, rows, &tile.factors, &block);
  }
  tile.factors.b_panel_stride = PanelSize(kernels, product.depth);
  tile.c_row_stride = product.c_row_stride;
  tile.accumulate = product.accumulate || first_depth > 0;
  tile.prefetches_c = true;
  tile.chain_terms = product.has_long_sums ? kShortChain : 0;
  // With AMX, the rows of a pass stay in the L1 cache until they have gone through all panels.
  for (int64_t row = 0; row < rows; row += tile.rows) {
    tile.rows = kernels.row_multiple == 1 ? rows : std::min(2 * kernels.row_multiple, rows - row);
    for (int64_t panel = first_panel; panel < end_panel; panel += kernels.tile_vectors) {
      const int64_t column = panel * kernels.lanes;
      const int64_t end_column = std::min(
          product.columns, std::min(panel + kernels.tile_vectors, end_panel) * kernels.lanes);
      tile.columns = end_column - column;
      tile.factors.b =
          product.b + panel * tile.factors.b_panel_stride + PanelSize(kernels, first_depth);
      tile.factors.next_b =
          row == 0 && panel + 2 * kernels.tile_vectors <= end_panel
              ? tile.factors.b + kernels.tile_vectors * tile.factors.b_panel_stride
              : nullptr;
      tile.c = product.c + (first_row + row) * product.c_row_stride + column;
      tile.bias = product.bias == nullptr || first_depth > 0 ? nullptr : product.bias + column;
      kernels.product(tile);
    }
    tile.factors.rounded_a = tile.factors.rounded_a.At(tile.rows, 0);
  }
}

// Returns where a block of rows begins: the blocks are nearly equal multiples of row_multiple.
int64_t FirstRowOfBlock(const KernelTraits& kernels, int64_t rows, int64_t block,
                        int64_t num_blocks) {
  const int64_t groups = (rows + kernels.row_multiple - 1) / kernels.row_multiple;
  return std::min(rows, groups * block / num_blocks * kernels.row_multiple);
}

// Computes one tile, panels [first_panel, end_panel), for all rows of the product. Packs the
// columns unless they are packed already.
template <typename T>
void MultiplyPackingTile(const Kernels<T>& kernels, const RowMajorProduct<T>& product,
                         int64_t first_panel, int64_t end_panel) {
  alignas(64) T packed[kMaxTileVectors * kMaxLanes * MaxDepthBlock<T>()];
  const int64_t column = first_panel * kernels.lanes;
  const int64_t end_column = std::min(product.columns, end_panel * kernels.lanes);
  const DepthBlocks blocks(kernels, product.depth);
  ProductTile<T> tile = ProductTile<T>();
  tile.rows = product.rows;
  tile.columns = end_column - column;
  tile.factors.a_row_stride = product.a_row_stride;
  tile.factors.a_depth_stride = 1;
  tile.c = product.c + column;
  tile.c_row_stride = product.c_row_stride;
  for (int64_t i = 0; i < blocks.count; ++i) {
    const int64_t first_depth = blocks.FirstDepth(i);
    const int64_t depth = blocks.FirstDepth(i + 1) - first_depth;
    tile.factors.depth = depth;
    tile.factors.a = product.a + first_depth;
    tile.accumulate = product.accumulate || i > 0;
    tile.bias = product.bias == nullptr || i > 0 ? nullptr : product.bias + column;
    if (product.panels != nullptr) {
      const int64_t panel_size = PanelSize(kernels, product.depth);
      tile.factors.b = product.panels + first_panel * panel_size + PanelSize(kernels, first_depth);
      tile.factors.b_panel_stride = panel_size;
      tile.factors.next_b = end_column == product.columns
                                ? product.next_b
                                : tile.factors.b + (end_panel - first_panel) * panel_size;
      kernels.product(tile);
      continue;
    }
    const int64_t panel_size = PanelSize(kernels, depth);
    const T* b = product.b + column * product.b_row_stride + first_depth;
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      const int64_t offset = (panel - first_panel) * kernels.lanes;
      kernels.pack_panel({b + offset * product.b_row_stride, 1, product.b_row_stride}, depth,
                         std::min(kernels.lanes, tile.columns - offset),
                         packed + (panel - first_panel) * panel_size);
    }
    tile.factors.b = packed;
    tile.factors.b_panel_stride = panel_size;
    // Each pass over the panels prefetches as much of the next tile's columns, which follow in b.
    tile.factors.next_b =
        product.b + end_column * product.b_row_stride + tile.columns * first_depth;
    kernels.product(tile);
  }
}

template <typename T>
void PackPanel(const Kernels<T>& kernels, const StridedMatrix<T>& source, int64_t depth,
               int64_t columns, T* packed) {
  kernels.pack_panel(source, depth, columns, packed);
}
template <typename T>
void PackPanel(const Kernels<T>& kernels, const StridedMatrix<uint16_t>& source, int64_t depth,
               int64_t columns, T* packed) {
  kernels.pack_bfloat16_panel(source, depth, columns, packed);
}

}  // namespace

template <typename T, typename Source>
void PackPanels(const Kernels<T>& kernels, const StridedMatrix<Source>& source, int64_t depth,
                int64_t columns, T* panels, TeamMember* member) {
  const int64_t lanes = kernels.lanes;
  member->ForEach(NumPanels(kernels, columns), depth * lanes / 4 + 1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t panel = begin; panel < end; ++panel) {
                      StridedMatrix<Source> part = source;
                      part.data += panel * lanes * source.column_stride;
                      PackPanel(kernels, part, depth, std::min(lanes, columns - panel * lanes),
                                panels + panel * PanelSize(kernels, depth));
                    }
                  });
}

template <typename T>
void Multiply(const Kernels<T>& kernels, const MatrixProduct<T>& product, TeamMember* member) {
  if (product.rows == 0 || product.columns == 0) return;
  const int64_t num_panels = NumPanels(kernels, product.columns);
  const int64_t num_tiles = (num_panels + kernels.tile_vectors - 1) / kernels.tile_vectors;
  const int64_t item_rows = product.rounded_a.data == nullptr ? kItemRows : kRoundedItemRows;
  const int64_t row_blocks = (product.rows + item_rows - 1) / item_rows;
  // With few row blocks, divides the columns further, so that the members get nearly equal shares.
  const int64_t wanted_blocks = Team::kSlicesPerMember * member->team_size() / row_blocks;
  const int64_t panel_blocks =
      std::max((num_panels + kItemPanels - 1) / kItemPanels, std::min(num_tiles, wanted_blocks));
  const DepthBlocks blocks(kernels, product.depth);
  const int64_t item_cost =
      (product.rows / row_blocks + 1) * ((num_panels / panel_blocks + 1) * (product.depth / 2 + 1));
  member->ForEach(row_blocks * panel_blocks, item_cost, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      // Adjacent items share panels.
      const int64_t panel_block = item / row_blocks, row_block = item % row_blocks;
      const int64_t first_row = FirstRowOfBlock(kernels, product.rows, row_block, row_blocks);
      const int64_t end_row = FirstRowOfBlock(kernels, product.rows, row_block + 1, row_blocks);
      const int64_t first_panel = num_tiles * panel_block / panel_blocks * kernels.tile_vectors;
      const int64_t end_panel =
          std::min(num_panels, num_tiles * (panel_block + 1) / panel_blocks * kernels.tile_vectors);
      for (int64_t i = 0; i < blocks.count; ++i) {
        const int64_t first_depth = blocks.FirstDepth(i);
        MultiplyBlock(kernels, product, first_row, end_row - first_row, first_panel, end_panel,
                      first_depth, blocks.FirstDepth(i + 1) - first_depth);
      }
    }
  });
}

template <typename T>
void MultiplyPackingTiles(const Kernels<T>& kernels, const RowMajorProduct<T>& product,
                          TeamMember* member) {
  const int64_t num_panels = NumPanels(kernels, product.columns);
  const int64_t tile_vectors = kernels.tile_vectors;
  // Packing an element costs about as much as multiplying it with eight rows.
  const int64_t tile_cost = tile_vectors * (product.rows + 8) * product.depth / 2 + 1;
  member->ForEach((num_panels + tile_vectors - 1) / tile_vectors, tile_cost,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t tile = begin; tile < end; ++tile) {
                      MultiplyPackingTile(kernels, product, tile * tile_vectors,
                                          std::min(num_panels, (tile + 1) * tile_vectors));
                    }
                  });
}

template void PackPanels(const Kernels<float>&, const StridedMatrix<float>&, int64_t, int64_t,
                         float*, TeamMember*);
template void PackPanels(const Kernels<float>&, const StridedMatrix<uint16_t>&, int64_t, int64_t,
                         float*, TeamMember*);
template void Multiply<float>(const Kernels<float>&, const MatrixProduct<float>&, TeamMember*);
template void MultiplyPackingTiles<float>(const Kernels<float>&, const RowMajorProduct<float>&,
                                          TeamMember*);
template void PackPanels(const Kernels<double>&, const StridedMatrix<double>&, int64_t, int64_t,
                         double*, TeamMember*);
template void PackPanels(const Kernels<double>&, const StridedMatrix<uint16_t>&, int64_t, int64_t,
                         double*, TeamMember*);
template void Multiply<double>(const Kernels<double>&, const MatrixProduct<double>&, TeamMember*);
template void MultiplyPackingTiles<double>(const Kernels<double>&, const RowMajorProduct<double>&,
                                           TeamMember*);

}  // namespace cudnn_rnn
