#include "core/orders.h"

#include <array>

namespace adaptive_train {
namespace {

template <class... Names>
constexpr auto Table(Names... names) {
  return std::array<std::string_view, sizeof...(names)>{names...};
}

constexpr auto kModes =
    Table("off", "auto", "variance-topk", "global-topk", "topk", "sketch", "local");
constexpr auto kValues = Table("fp32", "bf16", "fp8", "int4", "auto");
constexpr auto kVariances = Table("relative", "literal");
constexpr auto kFlushes = Table("send", "drop");
constexpr auto kGathers = Table("weights", "int8");
constexpr auto kReproducible = Table("off", "layout");
constexpr auto kShapes = Table("constant", "linear", "cosine");

}  // namespace

template <>
std::span<const std::string_view> NamesOf<CompressionMode>() {
  return kModes;
}
template <>
std::span<const std::string_view> NamesOf<ValueEncoding>() {
  return kValues;
}
template <>
std::span<const std::string_view> NamesOf<VarianceMeasure>() {
  return kVariances;
}
template <>
std::span<const std::string_view> NamesOf<ResidualFlush>() {
  return kFlushes;
}
template <>
std::span<const std::string_view> NamesOf<GatherFormat>() {
  return kGathers;
}
template <>
std::span<const std::string_view> NamesOf<Reproducible>() {
  return kReproducible;
}
template <>
std::span<const std::string_view> NamesOf<LrShape>() {
  return kShapes;
}

}  // namespace adaptive_train
