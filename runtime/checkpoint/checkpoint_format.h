// What the files of a checkpoint say: shards keyed by parameter and place, and the manifest over
// them.
//
// DIR/step-00000120/ holds, with N from 0:
//   shard-0000N.bin   float32, little-endian, no header: a part of the parameters, then of the
//                     first moments, of the second moments, of the residuals, as described in
//   shard-0000N.json  the parts (checkpoint_index.h), and the XXH3 hash of every block of the .bin
//   manifest.json     step, updates, identity, settings, extra numbers, the parameters' shapes;
//                     size of each shard's .bin and hash of its .json
//   DONE              hash of manifest.json; written last
// A hash covers every byte: DONE -> manifest.json -> shard-0000N.json -> blocks of shard-0000N.bin.
// Any number of ranks reads what any number of ranks wrote.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "kernels/buffer.h"
#include "runtime/checkpoint/checkpoint_settings.h"
#include "runtime/model/bucket_rule.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Versions 2 and 3 listed the pieces of every shard; 2 had no residuals and is read as one
/// without. Version 1 was one state.bin per checkpoint; it is not read any more.
inline constexpr int kCheckpointFormatVersion = 4;
inline constexpr int kOldestCheckpointFormatVersion = 2;
/// A .bin is hashed, written and read in blocks of this size; the last one may be shorter.
inline constexpr std::int64_t kCheckpointBlockBytes = std::int64_t{1} << 20;
/// Counts stay below this, so that no sum or product of sizes in bytes can overflow.
inline constexpr std::int64_t kMaxCheckpointCount = std::int64_t{1} << 53;
/// A manifest or a shard's index is never larger than this; what is beyond is garbage.
inline constexpr std::size_t kMaxCheckpointJsonBytes = std::size_t{64} << 20;

/// The arenas of a training state, in this order everywhere: master parameters, AdamW's first
/// moments, second moments, and the residuals of compressed gradients (error feedback, Seide et al.
/// 2014), which are empty where nothing is compressed.
inline constexpr std::size_t kTrainingArenas = 4;
inline constexpr std::array<const char*, kTrainingArenas> kTrainingArenaNames = {
    "parameters", "first_moments", "second_moments", "residuals"};
template <class E>
struct ArenaSpans {
  kernels::DeviceMemory* memory = nullptr;  // that the arenas are in; must outlive this
  std::array<std::span<E>, kTrainingArenas> spans;

  std::span<E>& operator[](std::size_t arena) { return spans[arena]; }
  const std::span<E>& operator[](std::size_t arena) const { return spans[arena]; }
};
using TrainingArenas = ArenaSpans<float>;
using ConstTrainingArenas = ArenaSpans<const float>;
/// Of the arenas before it a checkpoint holds every element exactly once. Residuals differ from
/// rank to rank, and only their sum means something at another number of ranks: any shard may hold
/// any of their elements, once, and what several shards hold adds up.
inline constexpr std::size_t kResiduals = 3;

/// What one rank writes of each arena.
using OwnedRanges = std::array<ElementRanges, kTrainingArenas>;

/// A parameter of the whole model.
struct CheckpointParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;  // product of the shape

  bool operator==(const CheckpointParameter&) const = default;
};

/// What a training state is besides its arenas.
struct CheckpointStep {
  std::int64_t step = 0;     // optimizer steps done
  std::int64_t updates = 0;  // of those, steps that changed the parameters: AdamW's t
  std::string identity;      // what must be the same to go on, in words; compared as it is
  std::map<std::string, double> extra;  // finite numbers by name, such as loss_scale
  CheckpointSettings settings = {};     // what else the run was made with
};

/// A shard as the manifest knows it; its number is its place in the list.
struct ManifestShard {
  std::int64_t bytes = 0;
  std::uint64_t index_hash = 0;  // of shard-0000N.json's text
};

/// manifest.json.
struct CheckpointManifest {
  CheckpointStep at;
  std::vector<CheckpointParameter> parameters;
  std::vector<ManifestShard> shards;
};

/// Part `part` of `parts` nearly equal ones of `elements`.
ElementRange PartOf(std::int64_t elements, std::int64_t part, std::int64_t parts);
/// The parameters of a layout, for the layout of a whole model.
std::vector<CheckpointParameter> ParametersOf(const ParameterLayout& layout);

/// XXH3, 64 bits.
std::uint64_t HashOf(std::span<const std::byte> bytes);
std::uint64_t HashOf(std::string_view text);

/// Texts of the files. Fails where `extra` holds a number that JSON cannot.
Result<std::string> ManifestText(const CheckpointManifest& manifest);
std::string DoneText(std::string_view manifest_text);

/// The text read again: untrusted; what comes back is consistent in itself (counts fit shapes).
/// `what` names the file in messages.
Result<CheckpointManifest> ParseManifest(std::string_view text, const std::string& what);

/// "shard-00002" and the like; the extension is the caller's.
std::string ShardName(std::size_t number);
/// "step-00000120".
std::string StepName(std::int64_t step);
/// The step of such a name, exactly as StepName writes it; -1 for any other name.
std::int64_t StepOfName(std::string_view name);

}  // namespace adaptive_train
