// What a checkpoint costs the training thread, and how long the rest takes behind its back.
//
// 13.9 million parameters, three float32 arenas. Snapshot is all that a step waits for; its floor
// is memcpy of the same bytes to memory that is there already, on one thread. Counters: of_floor
// (floor / snapshot, 1 is best), GB_per_s, and for the write thread_cpu_ms, the processor time that
// the writing thread took from the others. The write goes to $TMPDIR, or /tmp.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/host_memory.h"
#include "runtime/checkpoint/checkpoint_snapshot.h"
#include "runtime/checkpoint/checkpoint_writer.h"

namespace adaptive_train {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ProcessCpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// 13.9 million parameters.
const ModelDims kDims{6, 6, 384, 256, 8192, true};

/// Arenas with something in them, as pages of zeros would be one page.
struct Arenas {
  Arenas() : layout(kDims, StageSlice::Whole(kDims)) {
    for (auto& values : arenas) {
      values.resize(static_cast<std::size_t>(layout.size()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    }
  }
  ConstTrainingArenas Spans() const { return {&memory, {arenas[0], arenas[1], arenas[2]}}; }
  OwnedRanges Whole() const {
    const ElementRanges all{{0, layout.size()}};
    return {all, all, all};
  }

  ParameterLayout layout;
  mutable kernels::HostMemory memory;
  std::array<std::vector<float>, 3> arenas;
};

/// The best of several copies of as many bytes into warm memory.
double CopySeconds(const Arenas& arenas) {
  std::vector<float> to(arenas.arenas[0].size() * arenas.arenas.size());
  double best = 1e9;
  for (int repetition = 0; repetition < 10; ++repetition) {
    const double start = Seconds();
    float* next = to.data();
    for (const auto& from : arenas.arenas) {
      std::memcpy(next, from.data(), from.size() * sizeof(float));
      next += from.size();
    }
    best = std::min(best, Seconds() - start);
    benchmark::DoNotOptimize(to.data());
  }
  return best;
}

void Snapshot(benchmark::State& state) {
  const Arenas arenas;
  const double floor = CopySeconds(arenas);
  auto snapshot = CheckpointSnapshot::Allocate(arenas.Whole());
  if (!snapshot) return state.SkipWithError(snapshot.error().message.c_str());
  double total = 0, first = 0;
  for (auto _ : state) {
    const double start = Seconds();
    snapshot->Take(arenas.Spans(), static_cast<int>(state.range(0)));
    total += Seconds() - start;
    if (first == 0) first = total;
  }
  const double mean = total / static_cast<double>(state.iterations());
  state.counters["floor_ms"] = floor * 1e3;
  state.counters["of_floor"] = floor / mean;
  state.counters["first_ms"] = first * 1e3;
  state.counters["GB_per_s"] = static_cast<double>(snapshot->bytes().size()) / mean * 1e-9;
}
BENCHMARK(Snapshot)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// From Begin to the done-marker with one rank, while the training thread sleeps.
void BackgroundWrite(benchmark::State& state) {
  const Arenas arenas;
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/checkpoint_bench.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return state.SkipWithError("cannot make a folder");
  CheckpointWriterSettings settings;
  settings.path = path;
  settings.owner = {"bench", ParametersOf(arenas.layout)};
  settings.arena = {BlocksOf(arenas.layout), BucketRule::Whole(arenas.layout.size(), 1)};
  auto writer = CheckpointWriter::Create(settings);
  if (!writer) return state.SkipWithError(writer.error().message.c_str());
  std::int64_t step = 0;
  double cpu = 0, begin = 0;
  for (auto _ : state) {
    const double start = Seconds();
    if (!(*writer)->Begin({++step, step, "bench", {}}, arenas.Spans()))
      return state.SkipWithError("not ready");
    begin += Seconds() - start;
    const double cpu_before = ProcessCpuSeconds();
    for (CheckpointNews news; !news.ready;) {
      (*writer)->Wait(std::chrono::minutes(5));
      news = (*writer)->Follow((*writer)->Votes());
      if (!news.failure.empty()) return state.SkipWithError(news.failure.c_str());
    }
    cpu += ProcessCpuSeconds() - cpu_before;
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["begin_ms"] = begin / rounds * 1e3;
  state.counters["thread_cpu_ms"] = cpu / rounds * 1e3;
  writer->reset();
  std::filesystem::remove_all(path);
}
BENCHMARK(BackgroundWrite)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(2);

}  // namespace
}  // namespace adaptive_train

BENCHMARK_MAIN();
