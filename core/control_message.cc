#include "core/control_message.h"

#include <array>
#include <cmath>

#include "core/json.h"

namespace adaptive_train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Challenge, nonce)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hello, rank, host, pid, step_id, nonce, proof)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Welcome, proof, pmix_init_ms, go_ms, fence_ms, silence_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Resumed, step, from_memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Saving, blocks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Saved, step, path, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Notice, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Decision, step, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Signalled, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Injected, fault)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Goodbye, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Abort, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NewShares, samples)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sum, numbers)

namespace {

using nlohmann::json;

template <class Empty>
json EmptyObject(const Empty&) {
  return json::object();
}

json Body(const Ready& m) { return EmptyObject(m); }
json Body(const Go& m) { return EmptyObject(m); }
json Body(const CheckpointNow& m) { return EmptyObject(m); }
json Body(const ProfileNow& m) { return EmptyObject(m); }
json Body(const StatusNow& m) { return EmptyObject(m); }
json Body(const Stop& m) { return EmptyObject(m); }
json Body(const StopUnsaved& m) { return EmptyObject(m); }
json Body(const EndRound& m) { return EmptyObject(m); }
json Body(const GiveUp& m) { return EmptyObject(m); }
json Body(const Heartbeat& m) { return EmptyObject(m); }
json Body(const Challenge& m) { return m; }
json Body(const Hello& m) { return m; }
json Body(const Welcome& m) { return m; }
json Body(const Wired& m) { return EmptyObject(m); }
json Body(const Resumed& m) { return m; }
json Body(const Saving& m) { return m; }
json Body(const Saved& m) { return m; }
json Body(const Notice& m) { return m; }
json Body(const Decision& m) { return m; }
json Body(const Signalled& m) { return m; }
json Body(const Injected& m) { return m; }
json Body(const Goodbye& m) { return m; }
json Body(const Abort& m) { return m; }
json Body(const Sum& m) { return m; }
json Body(const NewShares& m) { return m; }

/// JSON has no NaN: a loss that is none travels as null.
double NumberOrNan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

struct RealField {
  const char* name;
  double RankMetrics::*field;
};
constexpr RealField kReals[] = {{"loss", &RankMetrics::loss},
                                {"lr", &RankMetrics::lr},
                                {"grad_norm", &RankMetrics::grad_norm},
                                {"loss_scale", &RankMetrics::loss_scale},
                                {"step_s", &RankMetrics::step_s},
                                {"compute_s", &RankMetrics::compute_s},
                                {"exposed_comm_s", &RankMetrics::exposed_comm_s},
                                {"bubble_s", &RankMetrics::bubble_s},
                                {"other_s", &RankMetrics::other_s},
                                {"opening_comm_s", &RankMetrics::opening_comm_s},
                                {"settling_s", &RankMetrics::settling_s},
                                {"flops", &RankMetrics::flops},
                                {"product_peak", &RankMetrics::product_peak},
                                {"density", &RankMetrics::density},
                                {"comm_cpu_s", &RankMetrics::comm_cpu_s}};
struct CountField {
  const char* name;
  std::int64_t RankMetrics::*field;
};
constexpr CountField kCounts[] = {{"step", &RankMetrics::step},
                                  {"tokens", &RankMetrics::tokens},
                                  {"replica", &RankMetrics::replica},
                                  {"samples", &RankMetrics::samples},
                                  {"grad_bytes", &RankMetrics::grad_bytes},
                                  {"param_bytes", &RankMetrics::param_bytes},
                                  {"activation_bytes", &RankMetrics::activation_bytes},
                                  {"gradient_entries", &RankMetrics::gradient_entries},
                                  {"unpeeled", &RankMetrics::unpeeled},
                                  {"peak_memory_bytes", &RankMetrics::peak_memory_bytes}};

json Body(const Metrics& m) {
  json body = {{"skipped", m.values.skipped}};
  for (const auto& [name, field] : kReals) body[name] = m.values.*field;
  for (const auto& [name, field] : kCounts) body[name] = m.values.*field;
  if (m.values.validation_loss) body["validation_loss"] = *m.values.validation_loss;
  return body;
}

Metrics MetricsFrom(const json& body) {
  Metrics m;
  m.values.skipped = body.at("skipped").get<bool>();
  for (const auto& [name, field] : kReals) m.values.*field = NumberOrNan(body.at(name));
  for (const auto& [name, field] : kCounts) m.values.*field = body.at(name).get<std::int64_t>();
  if (body.contains("validation_loss"))
    m.values.validation_loss = NumberOrNan(body.at("validation_loss"));
  return m;
}

json Body(const LayerTimes& m) {
  json entries = json::array();
  for (const LayerMeasurement& e : m.entries) {
    entries.push_back({{"layer", e.layer},
                       {"micro_batch", e.micro_batch},
                       {"forward_s", e.forward_s},
                       {"backward_s", e.backward_s},
                       {"weight_gradients_s", e.weight_gradients_s},
                       {"update_s", e.update_s},
                       {"gradient_variance", e.gradient_variance},
                       {"count", e.evidence.count},
                       {"spread", e.evidence.spread}});
  }
  return {{"entries", std::move(entries)}, {"variances", m.variances}};
}

/// More micro-batches than a profile can count are garbage.
constexpr std::int64_t kMostMeasurements = 1'000'000'000;

/// Of seconds, variances and spreads, none of which can be negative.
double Measured(const json& value) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0)
    throw json::other_error::create(500, "a measured value is not 0 or more", &value);
  return number;
}

LayerTimes LayerTimesFrom(const json& body) {
  LayerTimes m;
  for (const json& entry : body.at("entries")) {
    LayerMeasurement e;
    e.layer = entry.at("layer").get<std::string>();
    e.micro_batch = entry.at("micro_batch").get<std::int64_t>();
    e.evidence.count = entry.at("count").get<std::int64_t>();
    if ((e.layer != "embedding" && e.layer != "block" && e.layer != "head") || e.micro_batch < 1 ||
        e.evidence.count < 1 || e.evidence.count > kMostMeasurements)
      throw json::other_error::create(500, "no layer was measured so", &entry);
    e.forward_s = Measured(entry.at("forward_s"));
    e.backward_s = Measured(entry.at("backward_s"));
    e.weight_gradients_s = Measured(entry.at("weight_gradients_s"));
    e.update_s = Measured(entry.at("update_s"));
    e.gradient_variance = Measured(entry.at("gradient_variance"));
    e.evidence.spread = Measured(entry.at("spread"));
    m.entries.push_back(std::move(e));
  }
  for (const json& variance : body.at("variances"))
    m.variances.push_back(variance.get<double>() == kLayerNotHeld ? kLayerNotHeld
                                                                  : Measured(variance));
  return m;
}

json Body(const RankFailure& m) {
  return {{"rank", m.rank},           {"host", m.host},         {"peer", m.peer},
          {"operation", m.operation}, {"cause", m.cause},       {"step", m.step},
          {"exit_code", m.exit_code}, {"kind", NameOf(m.kind)}, {"within_plan", m.within_plan}};
}

RankFailure RankFailureFrom(const json& body) {
  RankFailure m;
  body.at("rank").get_to(m.rank);
  body.at("host").get_to(m.host);
  body.at("operation").get_to(m.operation);
  body.at("peer").get_to(m.peer);
  body.at("cause").get_to(m.cause);
  body.at("step").get_to(m.step);
  body.at("exit_code").get_to(m.exit_code);
  const auto kind = ChoiceOf<FailureKind>(body.at("kind").get<std::string>());
  if (!kind) throw json::other_error::create(500, "no failure is of this kind", &body.at("kind"));
  m.kind = *kind;
  body.at("within_plan").get_to(m.within_plan);
  return m;
}

/// A peer is a list of six numbers: a rank may have many.
json Body(const RankStatus& m) {
  json peers = json::array();
  for (const PeerTraffic& p : m.peers)
    peers.push_back({p.rank, p.sent, p.sent_bytes, p.received, p.received_bytes, p.awaited});
  return {{"step", m.step},           {"micro_batch", m.micro_batch}, {"work", m.work},
          {"operation", m.operation}, {"seconds", m.seconds},         {"peers", std::move(peers)}};
}

RankStatus RankStatusFrom(const json& body) {
  RankStatus m;
  m.step = body.at("step").get<std::int64_t>();
  m.micro_batch = body.at("micro_batch").get<std::int64_t>();
  m.work = body.at("work").get<std::string>();
  m.operation = body.at("operation").get<std::string>();
  m.seconds = Measured(body.at("seconds"));
  for (const json& peer : body.at("peers")) {
    const auto numbers = peer.get<std::array<std::int64_t, 6>>();
    m.peers.push_back(
        {static_cast<int>(numbers[0]), numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]});
  }
  return m;
}

/// Names on the wire, in the order of the variant.
constexpr const char* kTypes[] = {
    "challenge",      "hello",       "welcome",    "ready",      "wired",    "resumed",
    "metrics",        "layer_times", "saving",     "saved",      "notice",   "decision",
    "injected",       "failure",     "status",     "signalled",  "goodbye",  "go",
    "checkpoint_now", "profile_now", "new_shares", "status_now", "stop",     "stop_unsaved",
    "end_round",      "give_up",     "abort",      "sum",        "heartbeat"};
static_assert(std::size(kTypes) == std::variant_size_v<ControlMessage>);

Result<ControlMessage> Decode(const std::string& text) {
  try {
    const json body = json::parse(text);
    const auto type = body.at("type").get<std::string>();
    if (type == "challenge") return body.get<Challenge>();
    if (type == "hello") return body.get<Hello>();
    if (type == "welcome") return body.get<Welcome>();
    if (type == "ready") return Ready{};
    if (type == "wired") return Wired{};
    if (type == "resumed") return body.get<Resumed>();
    if (type == "metrics") return MetricsFrom(body);
    if (type == "layer_times") return LayerTimesFrom(body);
    if (type == "saving") return body.get<Saving>();
    if (type == "saved") return body.get<Saved>();
    if (type == "notice") return body.get<Notice>();
    if (type == "decision") return body.get<Decision>();
    if (type == "injected") return body.get<Injected>();
    if (type == "failure") return RankFailureFrom(body);
    if (type == "status") return RankStatusFrom(body);
    if (type == "signalled") return body.get<Signalled>();
    if (type == "goodbye") return body.get<Goodbye>();
    if (type == "go") return Go{};
    if (type == "checkpoint_now") return CheckpointNow{};
    if (type == "profile_now") return ProfileNow{};
    if (type == "new_shares") return body.get<NewShares>();
    if (type == "status_now") return StatusNow{};
    if (type == "stop") return Stop{};
    if (type == "stop_unsaved") return StopUnsaved{};
    if (type == "end_round") return EndRound{};
    if (type == "give_up") return GiveUp{};
    if (type == "sum") return body.get<Sum>();
    if (type == "abort") return body.get<Abort>();
    if (type == "heartbeat") return Heartbeat{};
    return Fail("control message of unknown type " + Printable(type, 40), ExitCode::kRankFailure);
  } catch (const json::exception& error) {
    return Fail("control message: " + InWords(error), ExitCode::kRankFailure);
  }
}

}  // namespace

std::string EncodeFrame(const ControlMessage& message) {
  json body = std::visit([](const auto& m) { return Body(m); }, message);
  body["type"] = kTypes[message.index()];
  const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>((size >> shift) & 0xff);
  return frame + text;
}

Result<std::optional<ControlMessage>> FrameReader::Next() {
  if (buffer_.size() < 4) return std::optional<ControlMessage>();
  std::uint32_t size = 0;
  for (int i = 0; i < 4; ++i)
    size = (size << 8) | static_cast<unsigned char>(buffer_[static_cast<std::size_t>(i)]);
  if (size > kMaxControlMessageBytes) {
    return Fail(fmt::format("control message of {} bytes; at most {} are allowed", size,
                            kMaxControlMessageBytes),
                ExitCode::kRankFailure);
  }
  if (buffer_.size() < 4 + size) return std::optional<ControlMessage>();
  auto message = Decode(buffer_.substr(4, size));
  buffer_.erase(0, 4 + size);
  if (!message) return tl::unexpected(message.error());
  return std::optional<ControlMessage>(std::move(*message));
}

}  // namespace adaptive_train
