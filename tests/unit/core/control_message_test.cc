// Frames of the control channel survive a round trip, however the stream is cut; garbage is
// refused.
#include "core/control_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace adaptive_train::control_message_test {
namespace {

ControlMessage RoundTrip(const ControlMessage& message) {
  FrameReader reader;
  for (char byte : EncodeFrame(message)) {
    auto early = reader.Next();
    EXPECT_TRUE(early && !*early);
    reader.Feed(std::string_view(&byte, 1));
  }
  auto whole = reader.Next();
  EXPECT_TRUE(whole && *whole);
  return **whole;
}

TEST(ControlMessage, EveryTypeSurvivesTheWire) {
  const ControlMessage all[] = {
      Challenge{"nonce"},
      Hello{3, "n1", 42, "7.0", "nonce", "proof"},
      Welcome{"proof", 1, 2, 3, 4},
      Ready{},
      Wired{},
      Resumed{5},
      Metrics{},
      LayerTimes{},
      Saving{12},
      Saved{9, "/x", 1.5},
      Notice{"refused"},
      Decision{7, "compression off"},
      Injected{"kill rank 3 at step 20"},
      RankFailure{1, "h", "op", 2, "why", 3, 12, FailureKind::kQuota, true},
      RankStatus{},
      Signalled{15},
      Goodbye{4},
      Go{},
      CheckpointNow{},
      ProfileNow{},
      NewShares{{3, 1}},
      StatusNow{},
      Stop{},
      StopUnsaved{},
      EndRound{},
      GiveUp{},
      Abort{"because"},
      Sum{{1, 2}},
      Heartbeat{}};
  static_assert(std::size(all) == std::variant_size_v<ControlMessage>);
  for (std::size_t i = 0; i < std::size(all); ++i) EXPECT_EQ(RoundTrip(all[i]).index(), i);
}

TEST(ControlMessage, KeepsItsFields) {
  const auto hello = std::get<Hello>(RoundTrip(Hello{3, "n\"1\n", 42, "7.0", "nonce", "proof"}));
  EXPECT_EQ(hello.host, "n\"1\n");
  EXPECT_EQ(hello.proof, "proof");
  EXPECT_EQ(hello.rank, 3);
  const auto failure = std::get<RankFailure>(RoundTrip(RankFailure{1, "h", "op", 2, "why", 3, 12}));
  EXPECT_EQ(failure.peer, 2);
  EXPECT_EQ(failure.exit_code, 12);
}

TEST(ControlMessage, AStatusKeepsItsPeers) {
  RankStatus said{7, 2, "computing", "all-reduce 3", 1.5, {{4, 1, 10, 2, 20, 3}, {5}}};
  const auto heard = std::get<RankStatus>(RoundTrip(said));
  EXPECT_EQ(heard.step, 7);
  EXPECT_EQ(heard.micro_batch, 2);
  EXPECT_EQ(heard.operation, "all-reduce 3");
  EXPECT_EQ(heard.seconds, 1.5);
  ASSERT_EQ(heard.peers.size(), 2u);
  EXPECT_EQ(heard.peers[0].rank, 4);
  EXPECT_EQ(heard.peers[0].sent_bytes, 10);
  EXPECT_EQ(heard.peers[0].received, 2);
  EXPECT_EQ(heard.peers[0].awaited, 3);
}

TEST(ControlMessage, MetricsKeepNumbersAndLossesThatAreNone) {
  Metrics metrics;
  metrics.values.step = 7;
  metrics.values.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.values.grad_norm = 0.1;
  metrics.values.skipped = true;
  metrics.values.grad_bytes = std::int64_t{1} << 40;
  metrics.values.validation_loss = 2.5;
  const auto back = std::get<Metrics>(RoundTrip(metrics)).values;
  EXPECT_EQ(back.step, 7);
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_EQ(back.grad_norm, 0.1);
  EXPECT_TRUE(back.skipped);
  EXPECT_EQ(back.grad_bytes, std::int64_t{1} << 40);
  EXPECT_EQ(back.validation_loss, 2.5);
}

LayerTimes MeasuredTimes() {
  LayerMeasurement block;
  block.layer = "block";
  block.micro_batch = 3;
  block.forward_s = 0.1;
  block.weight_gradients_s = 0.08;
  block.backward_s = 0.2;
  block.update_s = 1e-9;
  block.gradient_variance = 0.25;
  block.evidence = {.count = 4, .spread = 0.125, .measured_at = 77};
  return {{block}, {0.5, kLayerNotHeld, 0.125}};
}

TEST(ControlMessage, LayerTimesKeepTheirNumbers) {
  const auto back = std::get<LayerTimes>(RoundTrip(MeasuredTimes()));
  ASSERT_EQ(back.entries.size(), 1u);
  const LayerMeasurement& block = back.entries[0];
  EXPECT_EQ(block.layer, "block");
  EXPECT_EQ(block.micro_batch, 3);
  EXPECT_EQ(block.forward_s, 0.1);
  EXPECT_EQ(block.weight_gradients_s, 0.08);
  EXPECT_EQ(block.backward_s, 0.2);
  EXPECT_EQ(block.update_s, 1e-9);
  EXPECT_EQ(block.gradient_variance, 0.25);
  EXPECT_EQ(block.evidence.count, 4);
  EXPECT_EQ(block.evidence.spread, 0.125);
  EXPECT_EQ(back.variances, (std::vector<double>{0.5, kLayerNotHeld, 0.125}));
}

TEST(ControlMessage, LayerTimesThatCannotBeAreRefused) {
  const auto refused = [](auto spoil) {
    LayerTimes times = MeasuredTimes();
    spoil(times);
    FrameReader reader;
    reader.Feed(EncodeFrame(times));
    return !reader.Next().has_value();
  };
  EXPECT_FALSE(refused([](LayerTimes&) {}));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].layer = "everything"; }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].micro_batch = 0; }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].forward_s = -1; }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].backward_s = std::nan(""); }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].evidence.count = 0; }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.entries[0].evidence.count = std::int64_t{1} << 62; }));
  EXPECT_TRUE(refused([](LayerTimes& t) { t.variances[1] = -0.5; }));
}

TEST(ControlMessage, SeveralFramesInOnePiece) {
  FrameReader reader;
  reader.Feed(EncodeFrame(Go{}) + EncodeFrame(Stop{}) + "\0\0");
  EXPECT_TRUE(std::holds_alternative<Go>(**reader.Next()));
  EXPECT_TRUE(std::holds_alternative<Stop>(**reader.Next()));
  EXPECT_FALSE(*reader.Next());
}

std::string Frame(const std::string& body) {
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8)
    frame += static_cast<char>((body.size() >> shift) & 0xff);
  return frame + body;
}

TEST(ControlMessage, GarbageIsAnErrorInOneLine) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff"), Frame("not json"),
        Frame("{}"), Frame("[1]"), Frame(R"({"type":"dance"})"), Frame(R"({"type":"hello"})"),
        Frame(R"({"type":"metrics","step":"one"})"), Frame(R"({"type":7})")}) {
    FrameReader reader;
    reader.Feed(bytes);
    auto message = reader.Next();
    ASSERT_FALSE(message) << bytes;
    EXPECT_EQ(message.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace adaptive_train::control_message_test
