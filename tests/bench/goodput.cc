// Goodput of a large run on nodes that fail, by simulation (launcher/simulator/goodput.h): a table of
// what each means against failures brings. `goodput --help` lists what can be stated.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "launcher/simulator/goodput.h"

namespace adaptive_train {
namespace {

constexpr double kYear = 365.25 * 86400;

struct Stated {
  GoodputCase run = {.step_s = 10,
                     .interval_s = 600,
                     .save_s = 2,
                     .write_s = 120,
                     .detection_s = 3,
                     .restart_s = 2,
                     .read_s = 60,
                     .notice_s = 4 * 3600.0,
                     .queue_s = 3600,
                     .launch_s = 120,
                     .least_share = 0.9};
  std::vector<double> mtbf_years = {1, 5, 20};
  int spares = 20;
  double hand_interval_s = 3600;
  double copy_s = 0.3;  // 3 % of a step
  std::vector<int> memory_steps = {1, 10};
  int runs = 50;
};

struct Means {
  std::string name;
  GoodputCase run;
};

/// Each of the first lines adds one means to the line before.
std::vector<Means> MeansOf(const Stated& stated, double node_mtbf_s) {
  GoodputCase run = stated.run;
  run.node_mtbf_s = node_mtbf_s;
  const double interval_s = run.interval_s;
  std::vector<Means> means;
  run.after = AfterFailure::kByHand;
  run.interval_s = stated.hand_interval_s;
  means.push_back({fmt::format("by hand, saved every {:.0f} s", run.interval_s), run});
  run.interval_s = YoungDalyInterval(run.save_s, node_mtbf_s / run.nodes);
  means.push_back({fmt::format("... every {:.0f} s (Young, Daly)", run.interval_s), run});
  run.after = AfterFailure::kRequeue;
  means.push_back({"... requeued by exit code 75", run});
  run.after = AfterFailure::kSameAllocation;
  means.push_back({"... in the allocation, from disk", run});
  run.spares = stated.spares;
  means.push_back({fmt::format("... from disk, {} spares", run.spares), run});
  run.interval_s = interval_s;
  for (const int spares : {stated.spares, 0}) {
    for (const int steps : stated.memory_steps) {
      run.spares = spares;
      run.memory_steps = steps;
      run.memory_share = stated.copy_s / (steps * run.step_s);
      means.push_back({fmt::format("... from memory, k = {}{}", steps,
                                   spares > 0 ? fmt::format(", {} spares", spares) : ""),
                       run});
    }
  }
  return means;
}

void Print(const Means& means, int runs) {
  Goodput mean;
  double squares = 0, failures = 0;
  for (int seed = 0; seed < runs; ++seed) {
    const Goodput one = SimulateGoodput(means.run, static_cast<std::uint64_t>(seed));
    mean.useful += one.useful / runs;
    mean.again += one.again / runs;
    mean.saving += one.saving / runs;
    mean.down += one.down / runs;
    mean.missing += one.missing / runs;
    failures += static_cast<double>(one.failures) / runs;
    squares += one.useful * one.useful / runs;
  }
  const double error =
      std::sqrt(std::max(0.0, squares - mean.useful * mean.useful) / std::max(1, runs - 1));
  fmt::print("| {:<34} | {:6.2f} ({:4.2f}) | {:6.2f} | {:6.2f} | {:6.2f} | {:6.2f} | {:5.0f} |\n",
             means.name, 100 * mean.useful, 100 * error, 100 * mean.again, 100 * mean.saving,
             100 * mean.down, 100 * mean.missing, failures);
}

void AddOptions(CLI::App& app, Stated& stated) {
  GoodputCase& run = stated.run;
  const auto seconds = [&](const char* name, double& value, const char* what) {
    app.add_option(name, value, what)->capture_default_str()->check(CLI::NonNegativeNumber);
  };
  app.add_option("--mtbf-years", stated.mtbf_years, "mean time between failures of one node")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--nodes", run.nodes, "that train")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--spares", stated.spares, "besides")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  app.add_option("--runs", stated.runs, "seeds")
      ->capture_default_str()
      ->check(CLI::Range(2, 10000));
  app.add_option("--memory-steps", stated.memory_steps, "k: steps between copies in memory")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  seconds("--copy-s", stated.copy_s, "that a copy in memory costs");
  app.add_option("--least-share", run.least_share, "of the nodes, to go on with")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--step-s", run.step_s, "of training")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--interval-s", run.interval_s, "between saves, with state in memory")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--hand-interval-s", stated.hand_interval_s, "between saves, by hand")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--save-s", run.save_s, "that steps stand still for a save")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  seconds("--write-s", run.write_s, "from there until the checkpoint can be read");
  seconds("--detection-s", run.detection_s, "until a failure is known");
  seconds("--restart-s", run.restart_s, "until ranks train again in the allocation");
  seconds("--read-s", run.read_s, "of a checkpoint in the allocation");
  seconds("--notice-s", run.notice_s, "until a person submits again");
  seconds("--queue-s", run.queue_s, "in the queue");
  seconds("--launch-s", run.launch_s, "of a new job, with reading");
}

void PrintTable(const Stated& stated) {
  fmt::print(
      "{} nodes, {:.0f} days, means of {} runs; in percent of all time of nodes and spares\n",
      stated.run.nodes, stated.run.horizon_s / 86400, stated.runs);
  for (const double years : stated.mtbf_years) {
    const double mtbf_s = years * kYear;
    fmt::print("\na node fails every {:g} years, one of them every {:.1f} h\n", years,
               mtbf_s / stated.run.nodes / 3600);
    fmt::print("| {:<34} | {:<13} | {:<6} | {:<6} | {:<6} | {:<6} | {:<5} |\n", "means",
               "goodput (s.e.)", "again", "saving", "down", "absent", "lost");
    for (const Means& means : MeansOf(stated, mtbf_s)) Print(means, stated.runs);
  }
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  adaptive_train::Stated stated;
  CLI::App app("Simulates a large run on nodes that fail, with each means against it.", "goodput");
  adaptive_train::AddOptions(app, stated);
  CLI11_PARSE(app, argc, argv);
  adaptive_train::PrintTable(stated);
  return 0;
}
