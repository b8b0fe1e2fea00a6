// The head chunk by chunk. Rows that have a target are gathered; their logits are stored in tiles
// of the vocabulary.
#include "kernels/head_loss.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_end.h"

namespace adaptive_train::kernels::cpu {
namespace {

// A tile of logits is contiguous. With full-width rows the distance between rows would often be a
// power of two, which causes cache conflicts.
constexpr std::int64_t kVocabTile = kPanelRows;
constexpr std::int64_t kRowsPerPiece = 16;

/// The parts of the logits' gradients in tiles: of bfloat16 numbers they are rounded to such, as
/// all gradients of activations are.
template <class T>
constexpr int kGradientParts = std::is_same_v<T, BFloat16> ? 1 : kTileParts<float>;

/// How the rank's part of the vocabulary is cut. Groups begin where no number of ranks moves them,
/// and tiles where their group does.
struct VocabularyCut {
  struct Tile {
    std::int64_t first, width;
  };
  std::vector<Tile> tiles;
  std::vector<std::int64_t> group_ends;  // in tiles; without groups all tiles are one

  template <class T>
  explicit VocabularyCut(const HeadLossArguments<T>& x) {
    const VocabularyPart<T>& part = x.part;
    if (part.groups == 0) AddGroup(0, x.vocab);
    for (std::int64_t g = 0; g < part.groups; ++g) {
      const auto begin_of = [&](std::int64_t group) {
        return GroupBegin(part.whole, part.rank * part.groups + group, part.ranks * part.groups) -
               part.first;
      };
      AddGroup(begin_of(g), begin_of(g + 1));
    }
  }

  std::int64_t Tiles() const { return std::ssize(tiles); }
  std::int64_t Groups() const { return std::ssize(group_ends); }
  std::int64_t FirstTile(std::int64_t group) const {
    return group == 0 ? 0 : group_ends[static_cast<std::size_t>(group - 1)];
  }

 private:
  /// A group without entries has an empty tile, whose sums are zero.
  void AddGroup(std::int64_t begin, std::int64_t end) {
    do {
      tiles.push_back({begin, std::min(kVocabTile, end - begin)});
      begin += kVocabTile;
    } while (begin < end);
    group_ends.push_back(Tiles());
  }
};

/// Up to kHeadLossRows rows that have a target, and all that is computed for them. Arrays of
/// [tiles, rows] hold a value for each tile of the vocabulary and row.
template <class T>
class Chunk {
 public:
  /// The scratch memory of a chunk in floats, including the threads' own parts.
  static std::int64_t Size(const HeadLossArguments<T>& x, const VocabularyCut& cut,
                           std::int64_t rows, int threads) {
    return RowsSize(x, rows) + rows * cut.Tiles() * kVocabTile + threads * SizePerThread(cut);
  }

  Chunk(const HeadLossArguments<T>& x, const VocabularyCut& cut,
        const std::int64_t* rows_with_target, std::int64_t rows, ThreadPool& pool, bool by_tiles,
        float* scratch)
      : x_(x),
        cut_(cut),
        rows_with_target_(rows_with_target),
        rows_(rows),
        tiles_(cut.Tiles()),
        pool_(pool),
        by_tiles_(by_tiles),
        input_(scratch),
        d_input_(input_ + rows * x.columns),
        logits_(scratch + RowsSize(x, rows)),
        of_threads_(logits_ + rows * tiles_ * kVocabTile),
        softmax_(static_cast<std::size_t>(tiles_ * rows)),
        of_groups_(static_cast<std::size_t>(cut.Groups() * rows)),
        of_rows_(static_cast<std::size_t>(rows)),
        factors_(softmax_.size()),
        target_logits_(static_cast<std::size_t>(rows)) {}

  void Compute() {
    ForRows([&](std::int64_t row) {
      Widen<T>({.rows = 1,
                .columns = x_.columns,
                .matrix = x_.input + rows_with_target_[row] * x_.columns,
                .panel = input_ + row * x_.columns});
    });
    pool_.For(tiles_, [&](std::int64_t tile, int thread) { ComputeLogits(tile, Own(thread)); });
    ForRows([&](std::int64_t row) { CombineTiles(row); });
    CombineGroups();
    ForRows([&](std::int64_t row) { ComputeLoss(row); });
    if (x_.d_input == nullptr) return;
    pool_.For(tiles_, [&](std::int64_t tile, int thread) { AddWeightGradient(tile, Own(thread)); });
    ForStrips(
        pool_, rows_, x_.columns,
        [&](const Strip& strip, int thread) { ComputeInputGradient(strip, Own(thread)); },
        cut_.Groups() > 1 ? kGroupedStripRows : kMostStripRows);
    ForRows([&](std::int64_t row) {
      Narrow<T>({.rows = 1,
                 .columns = x_.columns,
                 .matrix = x_.d_input + rows_with_target_[row] * x_.columns,
                 .panel = d_input_ + row * x_.columns});
    });
  }

 private:
  /// Room for a product's strip, and for a tile's bias or the sums of groups.
  static std::int64_t SizePerThread(const VocabularyCut& cut) {
    return kStripPackedSize +
           (cut.Groups() > 1 ? StripPlaces::Size(cut.Groups(), kGroupedStripRows) : kVocabTile);
  }
  float* Own(int thread) const { return of_threads_ + thread * SizePerThread(cut_); }

  /// The size of inputs or their gradients, rounded up to whole cache lines.
  static std::int64_t RowsSize(const HeadLossArguments<T>& x, std::int64_t rows) {
    return 2 * PanelSize(rows * x.columns);
  }

  std::size_t At(std::int64_t tile, std::int64_t row) const {
    return static_cast<std::size_t>(tile * rows_ + row);
  }
  std::int64_t First(std::int64_t tile) const {
    return cut_.tiles[static_cast<std::size_t>(tile)].first;
  }
  std::int64_t Width(std::int64_t tile) const {
    return cut_.tiles[static_cast<std::size_t>(tile)].width;
  }
  float* Logits(std::int64_t tile) { return logits_ + tile * rows_ * kVocabTile; }
  /// In this rank's part of the vocabulary, if it is there.
  std::int64_t Target(std::int64_t row) const {
    return x_.targets[rows_with_target_[row]] - x_.part.first;
  }

  template <class Body>
  void ForRows(const Body& body) {
    pool_.ForPieces(rows_, kRowsPerPiece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(row);
    });
  }

  /// Calls body(row, logit) for each row whose target is in the tile.
  template <class Body>
  void ForTargets(std::int64_t tile, const Body& body) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t entry = Target(row) - First(tile);
      if (entry >= 0 && entry < Width(tile)) body(row, Logits(tile)[row * kVocabTile + entry]);
    }
  }

  /// Computes the tile's logits, then replaces them by their exponentials.
  void ComputeLogits(std::int64_t tile, float* scratch) {
    const std::int64_t first = First(tile), width = Width(tile);
    float *logits = Logits(tile), *bias = scratch + kStripPackedSize;
    MultiplyStrip(StripProduct<float, T>{.strip = {0, rows_, first, width},
                                         .inner = x_.columns,
                                         .a = Input(),
                                         .b = {x_.weight, x_.columns, true},
                                         .c = logits,
                                         .c_stride = kVocabTile,
                                         .by_tiles = by_tiles_,
                                         .packed = scratch});
    if (x_.bias != nullptr) {
      Widen<T>({.rows = 1, .columns = width, .matrix = x_.bias + first, .panel = bias});
      FinishTile<float>({.rows = rows_,
                         .columns = width,
                         .tile = logits,
                         .tile_stride = kVocabTile,
                         .stride = kVocabTile,
                         .bias = bias,
                         .c = logits});
    }
    ForTargets(tile, [&](std::int64_t row, float logit) {
      target_logits_[static_cast<std::size_t>(row)] = logit;
    });
    ExponentialRows({rows_, kVocabTile, kVocabTile, {width, 0, width}, logits},
                    &softmax_[At(tile, 0)], &factors_[At(tile, 0)]);
  }

  static void Add(const RunningSoftmax& part, RunningSoftmax& all) {
    const float largest = std::max(all.largest, part.largest);
    all.denominator = all.denominator * std::exp(all.largest - largest) +
                      part.denominator * std::exp(part.largest - largest);
    all.largest = largest;
  }

  void CombineTiles(std::int64_t row) {
    for (std::int64_t group = 0; group < cut_.Groups(); ++group) {
      RunningSoftmax& all = of_groups_[At(group, row)];
      for (std::int64_t tile = cut_.FirstTile(group); tile < cut_.FirstTile(group + 1); ++tile)
        Add(softmax_[At(tile, row)], all);
    }
  }

  /// Every rank fills its own places of what the ranks then have in common, and combines all groups
  /// in their order.
  void CombineGroups() {
    if (x_.part.ranks == 1 && cut_.Groups() == 1) return of_rows_.swap(of_groups_);
    const std::size_t rows = of_rows_.size(), groups = of_groups_.size() / rows;
    const std::size_t in_all = groups * static_cast<std::size_t>(x_.part.ranks);
    std::vector<float> shared((2 * in_all + 1) * rows);
    const std::span<float> targets = std::span(shared).last(rows);
    std::copy(target_logits_.begin(), target_logits_.end(), targets.begin());
    float* own = shared.data() + static_cast<std::size_t>(x_.part.rank) * 2 * of_groups_.size();
    for (std::size_t i = 0; i < of_groups_.size(); ++i) {
      own[2 * i] = of_groups_[i].largest;
      own[2 * i + 1] = of_groups_[i].denominator;
    }
    if (x_.part.ranks > 1) x_.part.sum(shared);
    std::copy(targets.begin(), targets.end(), target_logits_.begin());
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t group = 0; group < in_all; ++group) {
        const float* part = shared.data() + 2 * (group * rows + row);
        Add({part[0], part[1]}, of_rows_[row]);
      }
    }
  }

  /// Computes the row's loss, and the factors that turn its exponentials into gradients.
  void ComputeLoss(std::int64_t row) {
    const RunningSoftmax& all = of_rows_[static_cast<std::size_t>(row)];
    x_.losses[rows_with_target_[row]] =
        all.LogSumExp() - target_logits_[static_cast<std::size_t>(row)];
    const float scale = static_cast<float>(x_.gradient_scale) / all.denominator;
    for (std::int64_t tile = 0; tile < tiles_; ++tile)
      factors_[At(tile, row)] = scale * std::exp(softmax_[At(tile, row)].largest - all.largest);
  }

  /// Turns the tile's exponentials into d_logits.
  void AddWeightGradient(std::int64_t tile, float* scratch) {
    const std::int64_t first = First(tile), width = Width(tile);
    float* d_logits = Logits(tile);
    ScaleRows(rows_, width, &factors_[At(tile, 0)], d_logits, kVocabTile);
    ForTargets(tile, [&](std::int64_t, float& d_logit) {
      d_logit -= static_cast<float>(x_.gradient_scale);
    });
    if (x_.d_bias != nullptr) {
      AddColumns<float>({.rows = rows_,
                         .columns = width,
                         .values = d_logits,
                         .stride = kVocabTile,
                         .sums = x_.d_bias + first});
    }
    for (std::int64_t column = 0; column < x_.columns; column += kStripColumns) {
      MultiplyStrip(StripProduct<float, float>{
          .strip = {0, width, column, std::min(kStripColumns, x_.columns - column)},
          .inner = rows_,
          .a = {d_logits, kVocabTile, true, kGradientParts<T>},
          .b = Input(),
          .c = x_.d_weight + first * x_.columns + column,
          .c_stride = x_.columns,
          .accumulate = true,
          .by_tiles = by_tiles_,
          .packed = scratch});
    }
  }

  void ComputeInputGradient(const Strip& strip, float* scratch) {
    const StripPlaces places{strip.rows, strip.columns,
                             d_input_ + strip.row * x_.columns + strip.column, x_.columns,
                             scratch + kStripPackedSize};
    AddTree(
        0, cut_.Groups(), 0,
        [&](std::int64_t group, std::int64_t place) {
          const std::int64_t begin = cut_.FirstTile(group);
          for (std::int64_t tile = begin; tile < cut_.FirstTile(group + 1); ++tile) {
            MultiplyStrip(
                StripProduct<float, T>{.strip = strip,
                                       .inner = Width(tile),
                                       .a = {Logits(tile), kVocabTile, false, kGradientParts<T>},
                                       .b = {x_.weight + First(tile) * x_.columns, x_.columns},
                                       .c = places.At(place),
                                       .c_stride = places.Stride(place),
                                       .accumulate = tile > begin,
                                       .by_tiles = by_tiles_,
                                       .packed = scratch});
          }
        },
        [&](std::int64_t from, std::int64_t to) { places.Add(from, to); });
  }

  /// [rows, columns]: floats that hold numbers of type T.
  Operand<float> Input() const { return {input_, x_.columns, false, kTileParts<T>}; }

  const HeadLossArguments<T>& x_;
  const VocabularyCut& cut_;
  const std::int64_t* rows_with_target_;
  const std::int64_t rows_, tiles_;
  ThreadPool& pool_;
  const bool by_tiles_;
  float *const input_, *const d_input_, *const logits_, *const of_threads_;
  std::vector<RunningSoftmax> softmax_;    // [tiles, rows]
  std::vector<RunningSoftmax> of_groups_;  // [groups, rows]: of their tiles
  std::vector<RunningSoftmax> of_rows_;    // [rows]: of all groups of all ranks
  std::vector<float> factors_;             // [tiles, rows]
  std::vector<float> target_logits_;       // [rows]; 0 where another rank has it
};

}  // namespace

template <class T>
void CpuDevice<T>::HeadLoss(const HeadLossArguments<T>& x) {
  std::vector<std::int64_t> with_target;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    if (x.targets[row] >= 0) {
      with_target.push_back(row);
    } else {
      x.losses[row] = 0;
      if (x.d_input != nullptr) std::fill_n(x.d_input + row * x.columns, x.columns, T{});
    }
  }
  const auto rows = static_cast<std::int64_t>(with_target.size());
  if (rows == 0) return;
  const VocabularyCut cut(x);
  // Chunks have about the same size: a small one would read all weights for few rows.
  const std::int64_t chunks = Pieces(rows, kHeadLossRows), per_chunk = Pieces(rows, chunks);
  float* scratch = Scratch(Chunk<T>::Size(x, cut, per_chunk, pool_.threads()));
  for (std::int64_t first = 0; first < rows; first += per_chunk) {
    Chunk<T>(x, cut, with_target.data() + first, std::min(per_chunk, rows - first), pool_,
             by_tiles_, scratch)
        .Compute();
  }
}

template void CpuDevice<float>::HeadLoss(const HeadLossArguments<float>&);
template void CpuDevice<BFloat16>::HeadLoss(const HeadLossArguments<BFloat16>&);
template void CpuDevice<Float16>::HeadLoss(const HeadLossArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
