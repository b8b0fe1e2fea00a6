// When the communication thread leaves data alone, by a clock that the test sets.
#include "runtime/comm/wake_moderation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace adaptive_train::wake_moderation_test {
namespace {

using namespace std::chrono_literals;
using Clock = WakeModeration::Clock;

/// Plays a link that brings messages, in packets that wake the thread unless it pauses.
struct Link {
  WakeModeration wakes = {};
  Clock::time_point now = Clock::time_point{} + 1000h;
  int rounds = 0;

  /// A message of `bytes` at `rate` bytes per second in packets of `packet`. Returns how long it
  /// was there already when it was seen.
  Clock::duration Bring(double bytes, double rate, double packet) {
    const auto takes = [&](double part) {
      return std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(part / rate));
    };
    const auto whole = now + takes(bytes);
    auto seen = now + takes(std::min(packet, bytes));
    while (seen < whole) {
      const auto pause = wakes.Round(seen);
      ++rounds;
      seen += pause > 0us ? Clock::duration(pause) : takes(packet);
    }
    wakes.Ended(static_cast<std::size_t>(bytes));
    EXPECT_EQ(wakes.Round(seen), 0us);
    ++rounds;
    now = seen;
    return seen - whole;
  }
};

TEST(WakeModeration, OnASlowLinkAFewRoundsBringAMessage) {
  Link link;
  link.Bring(64 << 10, 25e6, 1448);
  EXPECT_GT(link.rounds, 40) << "nothing is known of the link";
  link.rounds = 0;
  for (int i = 0; i < 100; ++i) EXPECT_LE(link.Bring(64 << 10, 25e6, 1448), WakeModeration::kMost);
  EXPECT_LE(link.rounds, 6 * 100);
}

TEST(WakeModeration, WhatOneRoundBringsIsNeverHeldUp) {
  Link link;
  for (int i = 0; i < 100; ++i) link.Bring(64 << 10, 25e6, 1448);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(link.Bring(1000, 25e6, 1448), 0ns);
}

TEST(WakeModeration, AFastLinkIsNotHeldUp) {
  Link link;
  for (int i = 0; i < 100; ++i) EXPECT_LT(link.Bring(1 << 20, 1.25e9, 64 << 10), 150us);
}

TEST(WakeModeration, ALinkThatBecomesFastIsSoonTakenForOne) {
  Link link;
  for (int i = 0; i < 100; ++i) link.Bring(64 << 10, 25e6, 1448);
  for (int i = 0; i < 40; ++i) link.Bring(1 << 20, 1.25e9, 64 << 10);
  for (int i = 0; i < 100; ++i) EXPECT_LT(link.Bring(1 << 20, 1.25e9, 64 << 10), 150us);
}

TEST(WakeModeration, APauseIsNeverLong) {
  Link link;
  link.Bring(1 << 20, 1e4, 1448);
  for (int i = 0; i < 10; ++i) EXPECT_LE(link.Bring(64 << 10, 1e4, 1448), WakeModeration::kMost);
}

}  // namespace
}  // namespace adaptive_train::wake_moderation_test
