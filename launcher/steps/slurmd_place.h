// Where Slurm's daemons listen on the nodes, and whether they answer there.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/plan.h"

namespace adaptive_train {

/// How slurmd is reached on a node.
struct SlurmdPlace {
  std::string name;  // a host name or an IP address
  int port = 0;      // 0: not known
};
/// By the node's name.
using SlurmdPlaces = std::map<std::string, SlurmdPlace>;

/// What Slurm's controller says of the nodes of a plan; empty if it does not know one of them. Runs
/// scontrol twice, each time for 20 s at most.
SlurmdPlaces FindSlurmds(const Plan& plan);
/// The same from lines of `scontrol show node -o`, which name a port where it is not the usual one.
SlurmdPlaces ParseSlurmds(const std::string& shown, int usual_port);

/// The IP address by which Slurm reaches a node; empty if it cannot be told. Runs getent, for 5 s
/// at most.
std::string AddressOf(const SlurmdPlace& place);

/// The nodes from which nothing comes within `patience`: none of their addresses accepts or refuses
/// a connection. Where it cannot be tried, a node counts as one that answers. A firewall that drops
/// or rejects what comes makes a node silent, too. All are asked at once, after their names are
/// looked up, for 5 s each at most. TCP sends its first packet again after a second: a shorter
/// patience takes one lost packet for silence.
std::vector<std::string> SilentAmong(const SlurmdPlaces& places,
                                     std::chrono::milliseconds patience);

}  // namespace adaptive_train
