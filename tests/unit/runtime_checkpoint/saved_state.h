// Training states with values that tell step and place, and ranks that save them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/host_memory.h"
#include "runtime/checkpoint/checkpoint_writer.h"

namespace adaptive_train {

inline kernels::HostMemory host_memory;

inline const ModelDims kSmallDims{1, 2, 8, 4, 256, true};
/// Three arenas of several blocks.
inline const ModelDims kLargeDims{2, 2, 60, 7, 2011, false};

inline ParameterLayout WholeLayout(const ModelDims& dims) {
  return ParameterLayout(dims, StageSlice::Whole(dims));
}

inline CheckpointOwner OwnerOf(const ModelDims& dims) {
  return {"model.heads = 2", ParametersOf(WholeLayout(dims))};
}

/// Host arenas of a layout, without residuals unless a test makes some. Every element's bits depend
/// on step, arena and global place.
struct SavedState {
  explicit SavedState(const ParameterLayout& layout) {
    for (std::size_t arena = 0; arena < kResiduals; ++arena)
      arenas[arena].resize(static_cast<std::size_t>(layout.size()));
  }
  SavedState(const ParameterLayout& layout, std::int64_t step) : SavedState(layout) {
    for (const ParameterRange& range : layout.ranges())
      Fill({range.offset, range.global_offset, range.count}, step);
  }
  /// Of any blocks of a model.
  SavedState(const ArenaMap& map, std::int64_t step) {
    for (std::size_t arena = 0; arena < kResiduals; ++arena)
      arenas[arena].resize(static_cast<std::size_t>(map.size()));
    for (const ArenaRun& run : map.RunsOf({{0, map.size()}})) Fill(run, step);
  }
  void Fill(const ArenaRun& run, std::int64_t step) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (std::size_t arena = 0; arena < kResiduals; ++arena)
        arenas[arena][static_cast<std::size_t>(run.begin + i)] =
            ValueAt(step, arena, run.place + i);
    }
  }
  /// Any bits but those of infinities and NaNs, with which == would not compare bits.
  static float ValueAt(std::int64_t step, std::size_t arena, std::int64_t place) {
    const auto mixed = static_cast<std::uint32_t>(place * 2654435761 + step * 40503 +
                                                  static_cast<std::int64_t>(arena) * 97 + 1);
    return std::bit_cast<float>(mixed & 0xbfffffffU);
  }
  TrainingArenas Spans() {
    return {&host_memory, {arenas[0], arenas[1], arenas[2], arenas[kResiduals]}};
  }
  ConstTrainingArenas ConstSpans() const {
    return {&host_memory, {arenas[0], arenas[1], arenas[2], arenas[kResiduals]}};
  }

  std::array<std::vector<float>, kTrainingArenas> arenas;
};

/// One of the arenas, the others empty.
inline TrainingArenas Only(std::size_t arena, std::span<float> values) {
  TrainingArenas arenas{&host_memory, {}};
  arenas[arena] = values;
  return arenas;
}

inline CheckpointStep StepOf(std::int64_t step) {
  return {step, step - step / 3, "model.heads = 2", {{"loss_scale", 65536.0}, {"odd", 0.1}}};
}

/// As many ranks as writers, summing their votes. Made with options they all hold the whole model,
/// and write equal parts of it.
class SavingRanks {
 public:
  struct Options {
    std::int64_t keep = 2;
    std::int64_t ranks = 1;
    std::uint64_t attempt = 1;
    std::set<std::int64_t> refused = {};
    CheckpointSettings order = {};
  };

  SavingRanks(const std::string& path, const ModelDims& dims, const Options& options) {
    const ParameterLayout layout = WholeLayout(dims);
    const BucketRule rule = BucketRule::Whole(layout.size(), options.ranks);
    for (std::int64_t rank = 0; rank < options.ranks; ++rank)
      Add(path, dims, options, {BlocksOf(layout), rule}, {0, rank});
  }
  /// No ranks yet: see Add.
  SavingRanks() = default;

  /// Which rank describes a rank's arena, and its place in the rule.
  struct Share {
    std::int64_t arena_of = 0;
    std::int64_t place = 0;
  };
  /// The next rank.
  void Add(const std::string& path, const ModelDims& dims, const Options& options,
           const CheckpointArena& arena, const Share& share, bool residuals = false) {
    CheckpointWriterSettings settings;
    settings.path = path;
    settings.keep = options.keep;
    settings.rank = static_cast<std::int64_t>(writers.size());
    settings.ranks = options.ranks;
    settings.attempt = options.attempt;
    settings.owner = OwnerOf(dims);
    settings.owner.order = order_ = options.order;
    settings.arena = arena;
    settings.arena_of = share.arena_of;
    settings.place = share.place;
    settings.residuals = residuals;
    settings.refused = options.refused;
    settings.copy_threads = 2;
    auto writer = CheckpointWriter::Create(settings);
    if (!writer) throw std::runtime_error(writer.error().message);
    writers.push_back(std::move(*writer));
  }

  /// The sum that ranks make in a step, and what each learns from it.
  std::vector<CheckpointNews> Agree() {
    CheckpointVotes sums{};
    for (const auto& writer : writers) {
      const CheckpointVotes votes = writer->Votes();
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += votes[i];
    }
    std::vector<CheckpointNews> news;
    for (const auto& writer : writers) news.push_back(writer->Follow(sums));
    return news;
  }

  /// Waits until all are ready; "saved", or what went wrong.
  std::string Finish() {
    std::string outcome = "not saved";
    for (;;) {
      for (const auto& writer : writers) {
        if (!writer->Wait(std::chrono::minutes(1))) return "did not end";
      }
      bool ready = false;
      for (const CheckpointNews& news : Agree()) {
        ready = news.ready;
        if (news.saved) outcome = "saved";
        if (!news.failure.empty()) outcome = news.failure;
        if (!news.warning.empty()) warnings.push_back(news.warning);
      }
      if (ready) return outcome;
    }
  }

  /// All ranks hold the same state.
  std::string Save(std::int64_t step, const SavedState& state) {
    CheckpointStep at = StepOf(step);
    at.settings = order_;
    for (const auto& writer : writers)
      if (!writer->Begin(at, state.ConstSpans())) return "Begin refused";
    return Finish();
  }

  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  std::vector<std::string> warnings;

 private:
  CheckpointSettings order_;
};

/// A folder that is gone with the test.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "checkpoints.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    path_ = pattern;
  }
  ~CheckpointTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// Saves a state of `dims` made for the step.
  std::string Save(std::int64_t step, const SavingRanks::Options& options,
                   const ModelDims& dims = kSmallDims) const {
    SavingRanks ranks(path_, dims, options);
    return ranks.Save(step, SavedState(WholeLayout(dims), step));
  }
  /// "whole", or what is wrong with a step's checkpoint.
  std::string Check(std::int64_t step, const ModelDims& dims = kSmallDims) const {
    const ParameterLayout layout = WholeLayout(dims);
    SavedState read(layout);
    auto reader = CheckpointFolder(path_).Open(step, OwnerOf(dims));
    if (!reader) return reader.error().message;
    auto done = reader->Read(ReadingRank::OfAll(layout), read.Spans());
    if (!done) return done.error().message;
    const CheckpointStep &at = reader->manifest().at, expected = StepOf(step);
    if (at.step != step || at.updates != expected.updates || at.extra != expected.extra)
      return "another step's numbers";
    return read.arenas == SavedState(layout, step).arenas ? "whole" : "other values";
  }
  /// Takes what is the owner's and holds to the last byte.
  CheckpointFolder::Judge JudgeOf(const CheckpointOwner& owner) const {
    return [this, owner](std::int64_t step) -> Result<void> {
      auto reader = CheckpointFolder(path_).Open(step, owner);
      if (!reader) return tl::unexpected(reader.error());
      return reader->Verify();
    };
  }
  NewestCheckpoint Newest(const ModelDims& dims = kSmallDims) const {
    auto newest = CheckpointFolder(path_).NewestValid(JudgeOf(OwnerOf(dims)));
    if (!newest) throw std::runtime_error(newest.error().message);
    return *newest;
  }

  std::vector<std::int64_t> CompleteSteps() const {
    auto steps = CheckpointFolder(path_).Complete();
    if (!steps) throw std::runtime_error(steps.error().message);
    return *steps;
  }

  std::string path_;
};

}  // namespace adaptive_train
