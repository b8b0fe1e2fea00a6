// Mutates seeds and gives them to a parser; every run follows from (seed, run) alone.
//
//   fuzz_NAME [--runs N] [--seconds S] [--seed K] [--run R]
//
// A crash names its run; --seed K --run R repeats that one. No coverage guidance: what guides are
// the seeds, which reach every branch of a well-formed input.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

struct Arguments {
  std::uint64_t runs = 2000, seed = 1, first = 0;
  double seconds = 1e9;
};

/// Small changes that parsers stumble over: bits, lost and doubled bytes, and numbers at the edges.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : engine_(seed) {}

  std::string Mutate(const std::vector<std::string>& seeds) {
    std::string input = seeds[Below(seeds.size())];
    for (std::size_t changes = Below(6); changes > 0; --changes) Change(input, seeds);
    return input;
  }

 private:
  std::size_t Below(std::size_t end) { return end == 0 ? 0 : engine_() % end; }

  void Change(std::string& input, const std::vector<std::string>& seeds) {
    const std::size_t place = Below(input.size() + 1), size = 1 + Below(16);
    switch (Below(7)) {
      case 0:
        if (place < input.size()) input[place] = static_cast<char>(input[place] ^ 1 << Below(8));
        break;
      case 1:
        input.erase(place, size);
        break;
      case 2:
        input.insert(place, size, static_cast<char>(engine_()));
        break;
      case 3:
        input.resize(place);
        break;
      case 4:
        input.insert(place, input.substr(Below(input.size() + 1), size));
        break;
      case 5: {
        const std::string& other = seeds[Below(seeds.size())];
        input.replace(place, size, other.substr(Below(other.size() + 1), size));
        break;
      }
      default:
        PutNumber(input, place);
    }
  }

  void PutNumber(std::string& input, std::size_t place) {
    constexpr std::int64_t kEdges[] = {0,
                                       -1,
                                       1,
                                       2,
                                       127,
                                       128,
                                       255,
                                       256,
                                       65535,
                                       65536,
                                       INT32_MAX,
                                       INT32_MIN,
                                       UINT32_MAX,
                                       INT64_MAX,
                                       INT64_MIN,
                                       INT64_MAX / 8,
                                       INT64_MAX / 12};
    const std::uint64_t number =
        static_cast<std::uint64_t>(kEdges[Below(std::size(kEdges))]) + Below(3) * Below(2);
    const std::size_t width = std::size_t{1} << Below(4);
    if (place + width > input.size()) return;
    std::memcpy(input.data() + place, &number, width);
  }

  std::mt19937_64 engine_;
};

void RunAll(const Arguments& arguments, volatile std::uint64_t& current_run) {
  const std::vector<std::string> seeds = FuzzSeeds();
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  std::uint64_t done = 0;
  for (; done < arguments.runs && seconds() < arguments.seconds; ++done) {
    const std::uint64_t run = arguments.first + done;
    current_run = run;
    // The first runs are the seeds themselves.
    FuzzOne(run < seeds.size() ? seeds[run]
                               : Mutator(arguments.seed * 0x9e3779b97f4a7c15U + run).Mutate(seeds));
  }
  fmt::print("{} runs\n", done);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::uint64_t number = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--runs") {
      arguments.runs = number;
    } else if (name == "--seed") {
      arguments.seed = number;
    } else if (name == "--seconds") {
      arguments.seconds = static_cast<double>(number);
    } else if (name == "--run") {
      arguments.first = number;
      arguments.runs = 1;
    } else {
      fmt::print(
          stderr,
          "unknown option {}; there are --runs, --seed, --seconds and --run, each with a number\n",
          name);
      std::exit(2);
    }
  }
  return arguments;
}

/// The runs are a child's: however it ends, somebody is left who knows which run it was.
int Watch(const Arguments& arguments) {
  void* shared = ::mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  volatile std::uint64_t& current_run = *static_cast<std::uint64_t*>(shared);
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) {
    RunAll(arguments, current_run);
    std::exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) == child && status == 0) return 0;
  fmt::print(stderr, "fuzz: run {} failed; repeat it with --seed {} --run {}\n",
             std::uint64_t{current_run}, arguments.seed, std::uint64_t{current_run});
  return 1;
}

}  // namespace
}  // namespace adaptive_train::fuzz

int main(int argc, char** argv) {
  using namespace adaptive_train::fuzz;
  return Watch(Parse(argc, argv));
}
