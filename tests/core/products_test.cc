// Tests matrix products and sums of rows (all instruction sets of this processor).

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

template <typename T>
std::vector<T> Random(int64_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) value = uniform(generator);
  return values;
}

template <typename T>
T Rounded(T value) {
  return static_cast<T>(Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(value))));
}

template <typename T>
long double ExactProduct(const Kernels<T>&, T left, T right) {
  return static_cast<long double>(left) * right;
}

// Returns the product of two factors of packed operands, which kernels may round.
template <typename T>
long double Product(const Kernels<T>& kernels, T left, T right) {
  if (!kernels.rounds()) return ExactProduct(kernels, left, right);
  const T high_left = Rounded(left), high_right = Rounded(right);
  const long double product = ExactProduct(kernels, high_left, high_right);
  if (kernels.planes == 1) return product;
  return product + ExactProduct(kernels, high_left, Rounded(right - high_right)) +
         ExactProduct(kernels, Rounded(left - high_left), high_right);
}

template <typename T>
using ProductFunction = long double(const Kernels<T>&, T, T);

// The elements of `c` between its rows, which no product may change.
constexpr int64_t kGap = 3;

// Compares the product's c with sums in long double. `b` is its right factor [depth, columns],
// `before` its c before.
template <typename T>
void CheckResult(const Kernels<T>& kernels, ProductFunction<T>& multiply,
                 const MatrixProduct<T>& product, const StridedMatrix<T>& b,
                 const std::vector<T>& before) {
  double worst = 0;
  bool untouched = true;
  for (int64_t m = 0; m < product.rows; ++m) {
    const T* const old = before.data() + m * product.c_row_stride;
    const T* const found = product.c + m * product.c_row_stride;
    for (int64_t n = 0; n < product.columns; ++n) {
      long double sum = product.accumulate ? old[n] : T(0);
      if (product.bias != nullptr) sum += product.bias[n];
      for (int64_t k = 0; k < product.depth; ++k) {
        const T left = product.a.data[m * product.a.row_stride + k * product.a.column_stride];
        const T right = b.data[k * b.row_stride + n * b.column_stride];
        sum += multiply(kernels, left, right);
      }
      worst = std::max(worst, std::abs(static_cast<double>(found[n] - sum)));
    }
    untouched = untouched && std::equal(found + product.columns, found + product.c_row_stride,
                                        old + product.columns);
  }
  const double tolerance = 4 * std::numeric_limits<T>::epsilon() * (product.depth + 1);
  const std::string text = Concatenate(kernels.instruction_set, " ", product.rows, "x",
                                       product.columns, "x", product.depth);
  EXPECT(worst <= tolerance, text, ": ", worst);
  EXPECT(untouched, text, " wrote beyond its columns");
}

// Packs the right factor [depth, columns] of the product, and multiplies.
template <typename T>
void PackAndMultiply(const Kernels<T>& kernels, const StridedMatrix<T>& b,
                     MatrixProduct<T> product) {
  const int64_t size = NumPanels(kernels, product.columns) * PanelSize(kernels, product.depth);
  std::vector<T> packed(static_cast<size_t>(size) + 1, T(7));
  TeamMember alone;
  const KernelThread<T> thread(kernels);
  PackPanels<T, T>(kernels, b, product.depth, product.columns, packed.data(), &alone);
  EXPECT(packed.back() == T(7), kernels.instruction_set, " packed beyond the panels");
  product.b = packed.data();
  Multiply(kernels, product, &alone);
}

template <typename T>
void CheckProduct(const Kernels<T>& kernels, int64_t rows, int64_t columns, int64_t depth,
                  bool transpose_a, bool transpose_b, bool accumulate, bool with_bias,
                  bool has_long_sums) {
  const std::vector<T> a = Random<T>(rows * depth, 1), b = Random<T>(depth * columns, 2);
  const std::vector<T> before = Random<T>(rows * (columns + kGap), 3), bias = Random<T>(columns, 4);
  std::vector<T> c = before;
  const StridedMatrix<T> a_view =
      transpose_a ? StridedMatrix<T>{a.data(), 1, rows} : StridedMatrix<T>{a.data(), depth, 1};
  const StridedMatrix<T> b_view =
      transpose_b ? StridedMatrix<T>{b.data(), 1, depth} : StridedMatrix<T>{b.data(), columns, 1};
  const MatrixProduct<T> product = {
      rows,          columns,  depth,          a_view,
      /*b=*/nullptr, c.data(), columns + kGap, accumulate, with_bias ? bias.data() : nullptr,
      has_long_sums};
  PackAndMultiply(kernels, b_view, product);
  CheckResult(kernels, Product<T>, product, b_view, before);
}

template <typename T>
void CheckProducts() {
  for (const Kernels<T>* kernels : AllKernels<T>()) {
    int variant = 0;
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 65}) {
      for (int64_t columns : {1, 3, 15, 16, 17, 33, 47, 48, 49, 97}) {
        for (int64_t depth : {1, 5, 16, 64, 191, 192, 193}) {
          variant += 5;
          if (!testing::IsInSample(variant / 5)) continue;
          CheckProduct<T>(*kernels, rows, columns, depth, variant & 1, variant & 2, variant & 4,
                          variant & 8, variant & 16);
        }
      }
    }
    // More than one block of rows, of columns and of depth.
    if (testing::IsInSample(0)) {
      CheckProduct<T>(*kernels, 130, 16 * 48 + 5, 400, true, false, true, true, true);
    }
    if (testing::IsInSample(1)) {
      CheckProduct<T>(*kernels, 130, 50, 1700, false, true, false, true, false);
    }
    CheckProduct<T>(*kernels, 0, 5, 3, false, false, false, false, false);
    CheckProduct<T>(*kernels, 4, 0, 3, false, false, false, false, false);
    CheckProduct<T>(*kernels, 4, 5, 0, false, false, false, false, false);
    CheckProduct<T>(*kernels, 4, 5, 0, false, false, true, true, true);
  }
}

template <typename T>
using RowMajorFunction = void(const Kernels<T>&, const RowMajorProduct<T>&, TeamMember*);

template <typename T>
void CheckRowMajorProduct(const Kernels<T>& kernels, RowMajorFunction<T>& multiply, int64_t rows,
                          int64_t columns, int64_t depth, bool accumulate, bool with_bias) {
  const std::vector<T> a = Random<T>(rows * (depth + 2), 1),
                       b = Random<T>(columns * (depth + 1), 2);
  const std::vector<T> before = Random<T>(rows * (columns + kGap), 3), bias = Random<T>(columns, 4);
  std::vector<T> c = before;
  const T* const given_bias = with_bias ? bias.data() : nullptr;
  TeamMember alone;
  multiply(kernels,
           {rows, columns, depth, a.data(), depth + 2, b.data(), depth + 1, c.data(),
            columns + kGap, accumulate, given_bias},
           &alone);
  CheckResult(kernels, ExactProduct<T>,
              {rows,
               columns,
               depth,
               {a.data(), depth + 2, 1},
               /*b=*/nullptr,
               c.data(),
               columns + kGap,
               accumulate,
               given_bias},
              {b.data(), 1, depth + 1}, before);
}

template <typename T>
void ComputeDotProducts(const Kernels<T>& kernels, const RowMajorProduct<T>& product, TeamMember*) {
  kernels.dot_products(product);
}

template <typename T>
void CheckRowMajorProducts(RowMajorFunction<T>& multiply, bool with_rounding_kernels) {
  for (const Kernels<T>* kernels : AllKernels<T>()) {
    if (kernels->rounds() && !with_rounding_kernels) continue;
    int variant = 0;
    for (int64_t rows : {1, 2, 3, 4, 5, 9, 33}) {
      for (int64_t columns : {1, 3, 4, 7, 15, 16, 17, 50}) {
        for (int64_t depth : {0, 1, 3, 8, 15, 16, 17, 100, 385}) {
          variant += 3;
          CheckRowMajorProduct<T>(*kernels, multiply, rows, columns, depth, variant & 1,
                                  variant & 2);
        }
      }
    }
  }
}

TEST(DotProductsFloat) {
  CheckRowMajorProducts<float>(ComputeDotProducts<float>, /*with_rounding_kernels=*/true);
}
TEST(DotProductsDouble) {
  CheckRowMajorProducts<double>(ComputeDotProducts<double>, /*with_rounding_kernels=*/true);
}
TEST(ProductsThatPackTilesFloat) {
  CheckRowMajorProducts<float>(MultiplyPackingTiles<float>, /*with_rounding_kernels=*/false);
}
TEST(ProductsThatPackTilesDouble) {
  CheckRowMajorProducts<double>(MultiplyPackingTiles<double>, /*with_rounding_kernels=*/false);
}

// Expects the same bits from both ways to pack, across blocks of depth, columns and rows, so that
// the engine may choose the faster way.
template <typename T>
void CompareWaysToPack(const Kernels<T>& kernels, int64_t rows, int64_t columns, int64_t depth) {
  const std::vector<T> a = Random<T>(rows * depth, 1), b = Random<T>(columns * depth, 2),
                       bias = Random<T>(columns, 3);
  std::vector<T> whole(static_cast<size_t>(rows * columns)), by_tiles(whole);
  TeamMember alone;
  PackAndMultiply(kernels, {b.data(), 1, depth},
                  {rows,
                   columns,
                   depth,
                   {a.data(), depth, 1},
                   /*b=*/nullptr,
                   whole.data(),
                   columns,
                   /*accumulate=*/false,
                   bias.data(),
                   /*has_long_sums=*/false});
  MultiplyPackingTiles(kernels,
                       {rows, columns, depth, a.data(), depth, b.data(), depth, by_tiles.data(),
                        columns, /*accumulate=*/false, bias.data()},
                       &alone);
  EXPECT(whole == by_tiles, kernels.instruction_set, " ", rows, "x", columns, "x", depth);
}

// Expects the same bits from a left factor that is rounded as a whole and from one that is rounded
// block by block, across blocks of rows and of depth.
TEST(RoundingTheLeftFactorBeforeChangesNoBit) {
  constexpr int64_t kRows = 530, kColumns = 37;
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    if (!kernels->rounds()) continue;
    for (int64_t depth : {7, 705, 1411}) {
      const std::vector<float> a = Random<float>(kRows * depth, 1),
                               b = Random<float>(depth * kColumns, 2);
      std::vector<float> found(kRows * kColumns), expected(found);
      MatrixProduct<float> product = {kRows,         kColumns,        depth,   {a.data(), depth, 1},
                                      /*b=*/nullptr, expected.data(), kColumns};
      PackAndMultiply(*kernels, {b.data(), kColumns, 1}, product);
      const int64_t row_stride = RoundedRowStride(depth), plane = kRows * row_stride;
      std::vector<uint16_t> rounded(static_cast<size_t>(plane * kernels->planes));
      product.rounded_a = {rounded.data(), row_stride, kernels->planes > 1 ? plane : 0};
      kernels->round_rows(product.a, kRows, depth, PaddedDepth(*kernels, depth), product.rounded_a);
      product.c = found.data();
      PackAndMultiply(*kernels, {b.data(), kColumns, 1}, product);
      EXPECT(found == expected, kernels->instruction_set, ", ", kernels->planes, " planes, ",
             depth);
    }
  }
}

TEST(PackingTilesForThemselvesChangesNoBit) {
  for (int64_t rows : {1, 9, 50, 64}) {
    for (int64_t depth : {7, 192, 385, 1537}) {
      for (const Kernels<float>* kernels : AllKernels<float>()) {
        if (!kernels->rounds()) CompareWaysToPack(*kernels, rows, /*columns=*/117, depth);
      }
      for (const Kernels<double>* kernels : AllKernels<double>()) {
        CompareWaysToPack(*kernels, rows, /*columns=*/117, depth);
      }
    }
  }
}

// Returns the product [rows, columns] of a [depth, rows], transposed, and b [depth, columns] as the
// weight gradients compute it.
std::vector<float> LongSums(const Kernels<float>& kernels, const std::vector<float>& a,
                            const std::vector<float>& b, int64_t depth) {
  const int64_t rows = static_cast<int64_t>(a.size()) / depth;
  const int64_t columns = static_cast<int64_t>(b.size()) / depth;
  std::vector<float> c(static_cast<size_t>(rows * columns));
  PackAndMultiply(kernels, {b.data(), columns, 1},
                  {rows,
                   columns,
                   depth,
                   {a.data(), 1, rows},
                   /*b=*/nullptr,
                   c.data(),
                   columns,
                   /*accumulate=*/false,
                   /*bias=*/nullptr,
                   /*has_long_sums=*/true});
  return c;
}

// Sums of positive terms lose the most in one chain: about 1e-5 for 3000 terms in float.
TEST(LongSumsKeepTheirPrecision) {
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    const int64_t depth = 3000, rows = 5, columns = 20;
    std::vector<float> squares = Random<float>(rows * depth, 1),
                       positive = Random<float>(depth * columns, 2);
    for (float& value : squares) value *= value;
    for (float& value : positive) value = std::abs(value);
    const std::vector<float> c = LongSums(*kernels, squares, positive, depth);
    double worst = 0;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += static_cast<double>(
              Product(*kernels, squares[k * rows + m], positive[k * columns + n]));
        }
        worst = std::max(worst, std::abs(c[m * columns + n] - sum) / sum);
      }
    }
    EXPECT(worst < 1.5e-6, kernels->instruction_set, " ", worst);
  }
}

// 1 and then terms that are lost if they are added to it one by one. Only those of the first chain
// are. AMX has no chains.
TEST(LongSumsAreAddedInShortChains) {
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    if (std::string(kernels->instruction_set).find("amx") == 0) continue;
    const int64_t depth = 192, rows = 5, columns = 20;
    const double small = 1.0 / (1 << 25);
    std::vector<float> terms(rows * depth, static_cast<float>(small)), ones(depth * columns, 1.0f);
    std::fill_n(terms.begin(), rows, 1.0f);
    const std::vector<float> c = LongSums(*kernels, terms, ones, depth);
    for (float sum : c) {
      const double lost = 1 + (depth - 1) * small - static_cast<double>(sum);
      EXPECT(lost < 96 * small, kernels->instruction_set, " ", lost / small);
    }
  }
}

// Bias gradients are sums over all steps of all sequences. The columns are a whole block and a
// rest.
TEST(SumsOfManyRowsKeepTheirPrecision) {
  const int64_t rows = 200000, columns = 33;
  std::vector<float> matrix = Random<float>(rows * columns, 1), sums(columns);
  for (float& value : matrix) value = std::abs(value);
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    kernels->sum_rows(matrix.data(), columns, rows, columns, sums.data());
    for (int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (int64_t m = 0; m < rows; ++m) sum += static_cast<double>(matrix[m * columns + n]);
      EXPECT(std::abs(sums[n] - sum) <= 1e-7 * sum, kernels->instruction_set, " ", sums[n], " ",
             sum);
    }
  }
}

// Returns the instruction set that multiplies floats on processors with bfloat16 products.
std::string NameWithoutBfloat16() {
  return ThisProcessor().architecture == Architecture::kArm ? "neon" : "avx512";
}

// Every format of factors has the kernels of the instruction set, or of the next lower one.
TEST(ProductsOfBfloat16AreForTheirFactors) {
  const auto kernels_for = [](const std::string& name, FactorFormat factors) {
    const Kernels<float>* kernels = nullptr;
    EXPECT(ChooseKernels<float>(name, factors, &kernels).ok(), name);
    return kernels;
  };
  for (const std::string& name : InstructionSets()) {
    const bool has_products = MultipliesBfloat16(name);
    const Kernels<float>* exact = kernels_for(name, FactorFormat::kExact);
    EXPECT(exact->instruction_set == (has_products ? NameWithoutBfloat16() : name), name);
    EXPECT(!exact->rounds() && exact->planes == 1, name);
    const Kernels<float>* rounded = kernels_for(name, FactorFormat::kRounded);
    EXPECT(rounded->instruction_set == name && rounded->rounds() == has_products, name);
    EXPECT(rounded->planes == 1, name);
    const Kernels<float>* split = kernels_for(name, FactorFormat::kSplit);
    if (name == "amx_bf16") {
      EXPECT(split->instruction_set == name && split->rounds() && split->planes == 2);
    } else {
      EXPECT(split == exact, name);
    }
  }
  for (FactorFormat factors :
       {FactorFormat::kExact, FactorFormat::kSplit, FactorFormat::kRounded}) {
    InstructionSetChoice best;
    EXPECT(ChooseInstructionSet("", factors, ThisProcessor(), &best).ok());
    const std::string name = kernels_for("", factors)->instruction_set;
    EXPECT(name == Name(best.instruction_set), name, " ", best.reason);
  }
}

TEST(MatrixProductsFloat) { CheckProducts<float>(); }
TEST(MatrixProductsDouble) { CheckProducts<double>(); }

// Returns sum + left * right as the kernels compute it: only `portable` rounds the product.
template <typename T>
T AddProduct(const Kernels<T>& kernels, T sum, T left, T right) {
  if (std::string(kernels.instruction_set) == "portable") return left * right + sum;
  return std::fma(left, right, sum);
}

// Compares every sum of a tile, bit for bit, with chains that add one term at a time in the order
// of k. Kernels may add several terms per iteration of their loop, but in this order.
template <typename T>
void CheckOrderOfTerms(const Kernels<T>& kernels, int64_t rows, int64_t vectors, int64_t depth,
                       int64_t chain_terms, bool transpose_a) {
  const int64_t columns = vectors * kernels.lanes;
  const std::vector<T> a = Random<T>(rows * depth, 1), b = Random<T>(depth * columns, 2);
  std::vector<T> c(static_cast<size_t>(rows * columns));
  ProductTile<T> tile = ProductTile<T>();
  tile.factors.a = a.data();
  tile.factors.a_row_stride = transpose_a ? 1 : depth;
  tile.factors.a_depth_stride = transpose_a ? rows : 1;
  tile.factors.b = b.data();  // [vectors, depth, lanes]
  tile.factors.b_panel_stride = depth * kernels.lanes;
  tile.factors.depth = depth;
  tile.rows = rows;
  tile.columns = columns;
  tile.c = c.data();
  tile.c_row_stride = columns;
  tile.chain_terms = chain_terms;
  kernels.product(tile);

  std::vector<T> expected(c.size());
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      const T* const right = b.data() + n / kernels.lanes * depth * kernels.lanes;
      T total = 0, sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const T left = transpose_a ? a[k * rows + m] : a[m * depth + k];
        sum = AddProduct(kernels, sum, left, right[k * kernels.lanes + n % kernels.lanes]);
        if (chain_terms == 0 || (k + 1) % chain_terms != 0) continue;
        total += sum;
        sum = 0;
      }
      expected[m * columns + n] = total + sum;
    }
  }
  EXPECT(c == expected, kernels.instruction_set, " ", rows, " rows, ", vectors, " vectors, depth ",
         depth, ", chains of ", chain_terms, transpose_a ? ", transposed" : "");
}

template <typename T>
void CheckOrdersOfTerms() {
  for (const Kernels<T>* kernels : AllKernels<T>()) {
    if (kernels->rounds()) continue;
    for (int64_t rows = 1; rows <= 9; ++rows) {
      for (int64_t vectors = 1; vectors <= kernels->tile_vectors; ++vectors) {
        for (int64_t depth : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 23}) {
          for (int64_t chain_terms : {0, 2, 6, 8}) {
            CheckOrderOfTerms<T>(*kernels, rows, vectors, depth, chain_terms, false);
            CheckOrderOfTerms<T>(*kernels, rows, vectors, depth, chain_terms, true);
          }
        }
      }
    }
  }
}

TEST(EverySumHasTheOrderOfItsTermsFloat) { CheckOrdersOfTerms<float>(); }
TEST(EverySumHasTheOrderOfItsTermsDouble) { CheckOrdersOfTerms<double>(); }

}  // namespace
}  // namespace cudnn_rnn
