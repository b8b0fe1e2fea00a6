#include "launcher/planning.h"

#include <set>

#include "core/device_kind.h"
#include "core/seconds.h"

namespace adaptive_train {

PlanRequest RequestOf(const Config& config) {
  PlanRequest request;
  request.global_batch = config.train.global_batch;
  request.micro_batch = config.train.micro_batch;
  request.data = config.parallel.data;
  request.tensor = config.parallel.tensor;
  request.pipeline = config.parallel.pipeline;
  request.shard = config.parallel.shard;
  request.threads = config.device.threads;
  if (config.train.recompute != "auto") request.recompute = FormatOf(config.train).recompute;
  request.even_shares = config.parallel.shares == "even";
  return request;
}

Cluster ClusterOf(const Allocation& allocation, const std::vector<NodeCheck>& checks,
                  const Config& config) {
  Cluster cluster;
  cluster.name = allocation.cluster;
  for (const NodeCheck& check : checks) cluster.nodes.push_back(check.node);
  cluster.devices = DevicesOf(cluster.nodes, allocation.cpus, config.device.threads);
  return cluster;
}

ProfileQuery QueryOf(const Cluster& cluster, const Config& config) {
  ProfileQuery query;
  query.cluster = cluster.name;
  for (const Node& node : cluster.nodes) query.nodes.push_back(node.name);
  const auto kinds = KindsOf(cluster, RequestOf(config));
  query.device_kinds.assign(kinds.begin(), kinds.end());
  query.model_key = ModelKey(ModelShape::Of(DimsOf(config.model), FormatOf(config.train)));
  query.now = EpochSecondsNow();
  return query;
}

}  // namespace adaptive_train
