// What is known of a cluster's nodes, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"

namespace adaptive_train {

struct NodeStanding {
  struct MeasuredDevice {
    DeviceMeasurement measured;
    double of_kind = 0;  // its speed as a part of the median of its kind; 0: it is the only one
  };

  std::string node;
  std::vector<MeasuredDevice> devices;
  double bytes_per_second = 0;  // the median of its links; 0: none is known
  NodeHistory failures;         // those that count against it; failures 0: none
  double lost_links = 0;        // as failures of links with it
  double last_seen = 0;         // UTC seconds since 1970, when a job last measured it; 0: never
  std::string why;              // it would be kept aside for; empty: nothing is known against it
};

/// A line each, in their order; lines end in '\n'. `now` in UTC seconds since 1970.
std::string RenderNodeTable(const std::vector<NodeStanding>& nodes, double now);

/// docs/formats.md describes it.
std::string RenderNodesJson(const std::string& cluster, const std::vector<NodeStanding>& nodes);

}  // namespace adaptive_train
