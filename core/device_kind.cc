#include "core/device_kind.h"

#include <fmt/format.h>

namespace adaptive_train {
namespace {

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    default:
      return "fp32";
  }
}

}  // namespace

std::string DeviceKindName(const Device& device) {
  std::string name = device.model.empty() ? "unknown " + device.kind : device.model;
  if (device.kind != "cpu") return name;
  return fmt::format("{}, {} thread{}{}", name, device.threads, device.threads == 1 ? "" : "s",
                     device.cpus > 0 && device.cpus < device.threads
                         ? fmt::format(", {:.2f} CPUs", device.cpus)
                         : "");
}

std::string ModelKey(const ModelShape& model) {
  const ModelDims& d = model.dims;
  std::string attention;
  if (d.head_size != 0) attention += fmt::format(", head_size {}", d.head_size);
  if (d.attention_bias != AttentionBias::kOfKind)
    attention += fmt::format(", attention_bias {}", ToString(d.attention_bias));
  return fmt::format(
      "{}, hidden {}, ffn {}, heads {}, kv_heads {}{}, sequence {}, vocab {}, {}, {}, dropout {}, "
      "version {}",
      ToString(d.kind), d.hidden, d.Ffn(), d.heads, d.KvHeads(), attention, d.sequence, d.vocab,
      d.tie_embeddings ? "tied" : "untied", NameOf(model.format.precision),
      model.format.dropout ? "on" : "off", ADAPTIVE_TRAIN_VERSION);
}

}  // namespace adaptive_train
