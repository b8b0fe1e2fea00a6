// One rank of an exchange without training: random gradients of a GPT-2 of 13.9 M parameters are
// summed ROUNDS times.
//
//   exchange_bench RANK RANKS FOLDER DENSITY SHARDED ROUNDS
//
// Ranks find each other through files in FOLDER, which must be empty and visible to all. DENSITY 0
// exchanges uncompressed float32. Rank 0 prints the measured density and the bits per parameter and
// round: those that its network interface eth0 sent, and those that the exchange counts as payload.
// It also prints the median round's milliseconds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/seconds.h"
#include "kernels/cpu/cpu_device.h"
#include "runtime/comm/communicator.h"
#include "runtime/exchange/gradient_reducer.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

Deadline Soon() { return RunningClock::now() + std::chrono::minutes(2); }

[[noreturn]] void Refuse(const std::string& why) {
  fmt::print(stderr, "exchange_bench: {}\n", why);
  std::exit(1);
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void Meet(Communicator& communicator, const fs::path& folder) {
  const fs::path own = folder / std::to_string(communicator.Rank());
  std::ofstream(own.string() + ".part", std::ios::binary) << communicator.Address();
  fs::rename(own.string() + ".part", own);
  std::vector<std::string> addresses;
  const auto deadline = Soon();
  for (int rank = 0; rank < communicator.Size(); ++rank) {
    const fs::path path = folder / std::to_string(rank);
    while (!fs::exists(path)) {
      if (RunningClock::now() > deadline) Refuse(fmt::format("no rank {}", rank));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    addresses.push_back(ReadAll(path));
  }
  communicator.Connect(std::move(addresses));
}

void Barrier(Communicator& communicator) {
  double nothing[1] = {0};
  if (!communicator.World().AllReduce(Purpose::kStatistic, std::span<double>(nothing)).Wait(Soon()))
    Refuse("a rank is lost");
}

/// Bytes that eth0 of this network namespace has sent: the ninth number of its line.
double InterfaceBytes() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const auto colon = line.find("eth0:");
    if (colon == std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 5));
    double number = 0;
    for (int i = 0; i < 9; ++i) numbers >> number;
    return number;
  }
  return 0;
}

int Main(int rank, int ranks, const fs::path& folder, double density, bool sharded, int rounds) {
  auto communicator = Communicator::Open(rank, ranks);
  if (!communicator) Refuse(communicator.error().message);
  Meet(**communicator, folder);
  const ModelDims dims{.layers = 6, .heads = 6, .hidden = 384, .sequence = 256, .vocab = 8192};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  kernels::cpu::CpuDevice<float> device(1);
  std::vector<float> drawn(static_cast<std::size_t>(layout.size())), gradients(drawn.size());
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  for (float& value : drawn) value = normal(random);
  GradientReducer<float> reducer((*communicator)->World(), device, layout, gradients,
                                 {.feedback = density > 0, .sharded = sharded});
  ExchangePolicy policy;
  if (density > 0) policy.density.assign(LayersOf(layout).size(), density);
  reducer.SetPolicy(policy);

  const auto round = [&] {
    gradients = drawn;
    const double from = SteadySecondsNow();
    reducer.Add(0, gradients.size());
    if (const auto done = reducer.Finish(Soon()); !done) Refuse(done.error().cause);
    reducer.Settle(true);
    return SteadySecondsNow() - from;
  };
  // Lets residuals settle and connections open.
  for (int i = 0; i < 5; ++i) round();
  Barrier(**communicator);
  const double bytes_before = InterfaceBytes();
  const auto payload_before = (*communicator)->BytesSent(Purpose::kGradient);
  const double cpu_before = (*communicator)->CpuSeconds();
  std::vector<double> seconds;
  double sent = 0;
  for (int i = 0; i < rounds; ++i) {
    seconds.push_back(round());
    sent += reducer.Figures().density / rounds;
  }
  const double per_parameter = 8.0 / rounds / static_cast<double>(drawn.size());
  const double bits = (InterfaceBytes() - bytes_before) * per_parameter;
  const double payload =
      static_cast<double>((*communicator)->BytesSent(Purpose::kGradient) - payload_before) *
      per_parameter;
  const double cpu_s = ((*communicator)->CpuSeconds() - cpu_before) / rounds;
  Barrier(**communicator);
  std::sort(seconds.begin(), seconds.end());
  if (rank == 0)
    fmt::print("{} {} {} {} {}\n", sent, bits, payload, 1000 * seconds[seconds.size() / 2],
               1000 * cpu_s);
  return 0;
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  if (argc != 7)
    adaptive_train::Refuse("usage: exchange_bench RANK RANKS FOLDER DENSITY SHARDED ROUNDS");
  return adaptive_train::Main(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], std::atof(argv[4]),
                              std::atoi(argv[5]) != 0, std::max(1, std::atoi(argv[6])));
}
