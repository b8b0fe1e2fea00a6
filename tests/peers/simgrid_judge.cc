#include "tests/peers/simgrid_judge.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <simgrid/s4u.hpp>

namespace adaptive_train {
namespace {

namespace sg4 = simgrid::s4u;

int payload = 0;  // SimGrid wants something to carry

sg4::Mailbox* Box(const std::string& name) { return sg4::Mailbox::by_name(name); }

sg4::CommPtr Receive(const std::string& box) {
  static int* ignored = nullptr;
  return Box(box)->get_async<int>(&ignored);
}

void SendAway(const std::string& box, double bytes) {
  Box(box)->put_init(&payload, static_cast<std::uint64_t>(std::llround(bytes)))->detach();
}

/// A host per device. Between nodes a message takes three shared links: card, pair, card. The
/// pair's has all of the latency.
class Platform {
 public:
  Platform(const LinkTable& links, const JudgeCards& cards, const std::vector<int>& node_of)
      : links_(links), zone_(sg4::create_full_zone("cluster")) {
    for (std::size_t d = 0; d < node_of.size(); ++d)
      hosts_.push_back(zone_->create_host(fmt::format("device{}", d), 1e9)->seal());
    for (std::size_t n = 0; n < links.Nodes(); ++n) {
      out_.push_back(Make(fmt::format("out{}", n), cards.egress[n], 0));
      in_.push_back(Make(fmt::format("in{}", n), cards.ingress[n], 0));
    }
    pairs_.resize(links.Nodes() * links.Nodes());
    for (std::size_t a = 0; a < node_of.size(); ++a)
      for (std::size_t b = 0; b < node_of.size(); ++b)
        if (a != b) Connect(a, b, node_of[a], node_of[b]);
    zone_->seal();
  }
  sg4::Host* At(std::size_t device) const { return hosts_[device]; }

 private:
  sg4::Link* Make(const std::string& name, double bandwidth, double latency) {
    sg4::Link* link = zone_->create_link(name, bandwidth)->set_latency(latency);
    link->seal();
    return link;
  }
  void Connect(std::size_t a, std::size_t b, int from, int to) {
    const LinkSpeed& speed = links_.At(from, to);
    std::vector<sg4::LinkInRoute> route;
    if (from == to) {
      route.emplace_back(
          Make(fmt::format("inside{}-{}", a, b), speed.bytes_per_second, speed.latency_s));
    } else {
      sg4::Link*& pair =
          pairs_[static_cast<std::size_t>(from) * links_.Nodes() + static_cast<std::size_t>(to)];
      if (pair == nullptr)
        pair = Make(fmt::format("pair{}-{}", from, to), speed.bytes_per_second, speed.latency_s);
      for (sg4::Link* link :
           {out_[static_cast<std::size_t>(from)], pair, in_[static_cast<std::size_t>(to)]})
        route.emplace_back(link);
    }
    zone_->add_route(hosts_[a]->get_netpoint(), hosts_[b]->get_netpoint(), nullptr, nullptr, route,
                     false);
  }

  const LinkTable& links_;
  sg4::NetZone* zone_;
  std::vector<sg4::Host*> hosts_;
  std::vector<sg4::Link*> out_, in_, pairs_;
};

/// Pure fluid: messages have their bytes and their latency, nothing is made up of TCP.
void Configure() {
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/bandwidth-factor:1");
  sg4::Engine::set_config("network/latency-factor:1");
  sg4::Engine::set_config("network/weight-S:0");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("contexts/factory:thread");  // the one that sanitizers understand
}

/// Plays `simulate` in a child process that prints the seconds it returns.
Result<double> InChild(const std::function<double()>& simulate) {
  int fds[2];
  if (::pipe(fds) != 0) return Fail("pipe failed", ExitCode::kUsage);
  const pid_t child = ::fork();
  if (child < 0) return Fail("fork failed", ExitCode::kUsage);
  if (child == 0) {
    ::close(fds[0]);
    const double seconds = simulate();
    const bool written = ::write(fds[1], &seconds, sizeof seconds) == sizeof seconds;
    ::_exit(written ? 0 : 1);
  }
  ::close(fds[1]);
  double seconds = 0;
  const bool told = ::read(fds[0], &seconds, sizeof seconds) == sizeof seconds;
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!told || status != 0)
    return Fail(fmt::format("SimGrid's process ended with status {}", status), ExitCode::kUsage);
  return seconds;
}

sg4::Engine& NewEngine() {
  static int count = 2;
  static char name[] = "judge", quiet[] = "--log=root.thres:warning";
  static char* arguments[] = {name, quiet, nullptr};
  static sg4::Engine engine(&count, arguments);
  Configure();
  return engine;
}

/// One rank of the ring: send to the right, take from the left, both over before the next phase.
void AllReduce(const std::string& name, int members, int position, double bytes) {
  for (int phase = 0; phase < 2 * (members - 1); ++phase) {
    const int left = (position + members - 1) % members;
    auto taken = Receive(fmt::format("{}/{}/{}", name, left, phase));
    auto sent =
        Box(fmt::format("{}/{}/{}", name, position, phase))
            ->put_async(&payload, static_cast<std::uint64_t>(std::llround(bytes / members)));
    sent->wait();
    taken->wait();
  }
}

/// One stage of one replica, as a program of its own.
class RankProgram {
 public:
  RankProgram(const PlanProblem& problem, const Layout& layout, int stage, int replica,
              double bucket_bytes)
      : problem_(problem),
        layout_(layout),
        stage_(stage),
        replica_(replica),
        stages_(layout.Stages()),
        micro_batches_(
            static_cast<int>(layout.shares[static_cast<std::size_t>(replica)].MicroBatches())),
        samples_(static_cast<double>(layout.shares[static_cast<std::size_t>(replica)].micro_batch)),
        bucket_(bucket_bytes) {
    const auto& ring = layout.rings[static_cast<std::size_t>(stage)];
    position_ = static_cast<int>(std::find(ring.begin(), ring.end(), replica) - ring.begin());
  }

  void operator()() {
    for (int i = 0; i < micro_batches_; ++i) {
      if (stage_ > 0) activations_.push_back(Receive(Name("a", stage_, i)));
      if (stage_ < stages_ - 1) gradients_.push_back(Receive(Name("g", stage_, i)));
    }
    const int warm_up = std::min(micro_batches_, stages_ - stage_ - 1);
    int forward = 0, backward = 0;
    while (forward < warm_up) Forward(forward++);
    while (forward < micro_batches_) {
      Forward(forward++);
      Backward(backward++);
    }
    while (backward < micro_batches_) Backward(backward++);
    for (const auto& bucket : buckets_) bucket->join();
    if (layout_.data > 1) AllReduce(fmt::format("agree{}", stage_), layout_.data, position_, 80);
    double update = 0;
    for (int l = First(); l < End(); ++l) update += Seconds(l).update;
    sg4::this_actor::sleep_for(update);
  }

 private:
  int First() const { return layout_.cut[static_cast<std::size_t>(stage_)]; }
  int End() const { return layout_.cut[static_cast<std::size_t>(stage_) + 1]; }
  const LayerSeconds& Seconds(int layer) const {
    const int device = layout_.devices[layout_.DeviceIndex(stage_, replica_, 0)];
    const int kind = problem_.devices[static_cast<std::size_t>(device)].kind;
    return problem_.kinds[static_cast<std::size_t>(kind)].layers[static_cast<std::size_t>(layer)];
  }
  std::string Name(const char* what, int stage, int i) const {
    return fmt::format("{}/{}/{}/{}", what, stage, replica_, i);
  }
  double BoundaryBytes(int last_layer) const {
    return samples_ * problem_.layers[static_cast<std::size_t>(last_layer)].boundary_bytes;
  }

  void Forward(int i) {
    if (stage_ > 0) activations_[static_cast<std::size_t>(i)]->wait();
    for (int l = First(); l < End(); ++l)
      sg4::this_actor::sleep_for(Seconds(l).forward.At(samples_));
    if (stage_ < stages_ - 1) SendAway(Name("a", stage_ + 1, i), BoundaryBytes(End() - 1));
  }

  void Backward(int i) {
    if (stage_ < stages_ - 1) gradients_[static_cast<std::size_t>(i)]->wait();
    const bool last = i == micro_batches_ - 1;
    for (int l = End() - 1; l >= First(); --l) {
      sg4::this_actor::sleep_for(Seconds(l).backward.At(samples_));
      if (!last || layout_.data == 1) continue;
      const double bytes = problem_.layers[static_cast<std::size_t>(l)].gradient_bytes;
      const double buckets = std::ceil(bytes / bucket_);
      for (int b = 0; b < buckets; ++b) StartBucket(bytes / buckets);
    }
    if (stage_ > 0) SendAway(Name("g", stage_ - 1, i), BoundaryBytes(First() - 1));
  }

  void StartBucket(double bytes) {
    const std::string name = fmt::format("bucket{}.{}", stage_, buckets_.size());
    buckets_.push_back(sg4::Actor::create(fmt::format("{}.{}", name, replica_),
                                          sg4::this_actor::get_host(),
                                          [name, members = layout_.data, position = position_,
                                           bytes] { AllReduce(name, members, position, bytes); }));
  }

  const PlanProblem& problem_;
  const Layout& layout_;
  const int stage_, replica_, stages_, micro_batches_;
  const double samples_, bucket_;
  int position_ = 0;
  std::vector<sg4::CommPtr> activations_, gradients_;
  std::vector<sg4::ActorPtr> buckets_;
};

}  // namespace

Result<double> StepBySimGrid(const PlanProblem& problem, const Layout& layout,
                             const JudgeCards& cards, double bucket_bytes) {
  return InChild([&] {
    sg4::Engine& engine = NewEngine();
    std::vector<int> node_of;
    for (const ProblemDevice& device : problem.devices) node_of.push_back(device.node);
    const Platform platform(problem.links, cards, node_of);
    for (int s = 0; s < layout.Stages(); ++s) {
      for (int d = 0; d < layout.data; ++d) {
        const auto device = static_cast<std::size_t>(layout.devices[layout.DeviceIndex(s, d, 0)]);
        sg4::Actor::create(fmt::format("rank{}.{}", s, d), platform.At(device),
                           [&, s, d] { RankProgram(problem, layout, s, d, bucket_bytes)(); });
      }
    }
    engine.run();
    return sg4::Engine::get_clock();
  });
}

Result<double> MessagesBySimGrid(const LinkTable& links, const JudgeCards& cards,
                                 const std::vector<JudgeMessage>& messages) {
  return InChild([&] {
    sg4::Engine& engine = NewEngine();
    std::vector<int> node_of;
    for (std::size_t n = 0; n < links.Nodes(); ++n) node_of.push_back(static_cast<int>(n));
    const Platform platform(links, cards, node_of);
    double sum = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const JudgeMessage& message = messages[i];
      const std::string box = fmt::format("message{}", i);
      sg4::Actor::create(box + "to", platform.At(static_cast<std::size_t>(message.to)),
                         [box, &sum] {
                           Receive(box)->wait();
                           sum += sg4::Engine::get_clock();
                         });
      sg4::Actor::create(box + "from", platform.At(static_cast<std::size_t>(message.from)),
                         [box, &message] {
                           sg4::this_actor::sleep_for(message.at);
                           SendAway(box, message.bytes);
                         });
    }
    engine.run();
    return sum / static_cast<double>(messages.size());
  });
}

}  // namespace adaptive_train
