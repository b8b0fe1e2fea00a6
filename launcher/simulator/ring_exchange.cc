#include "launcher/simulator/ring_exchange.h"

namespace adaptive_train {

RingExchange::RingExchange(SimulatedLinks& links, std::span<const Place> members, double bytes,
                           RingPart part, bool coarse, Done done)
    : links_(links),
      places_(members),
      members_(coarse ? 0 : places_.size()),
      phases_((part == RingPart::kAll ? 2 : 1) * (static_cast<int>(places_.size()) - 1)),
      chunk_(bytes / static_cast<double>(places_.size())),
      coarse_(coarse),
      done_(std::move(done)) {}

void RingExchange::Ready(int member) {
  if (!coarse_) return Enter(static_cast<std::size_t>(member));
  if (++ready_ < places_.size()) return;
  links_.SendAround(places_, phases_, chunk_, [this] {
    for (std::size_t i = 0; i < places_.size(); ++i) done_(static_cast<int>(i));
  });
}

void RingExchange::Enter(std::size_t index) {
  Member& member = members_[index];
  member.parts = 0;
  if (++member.phase == phases_) return done_(static_cast<int>(index));
  SendIfBothThere(index);
  SendIfBothThere(Left(index));
}

/// Neighbours are at most one phase apart, so the later arrival starts the message.
void RingExchange::SendIfBothThere(std::size_t from) {
  const std::size_t to = Right(from);
  if (members_[from].phase != members_[to].phase) return;
  links_.Send(places_[from], places_[to], chunk_, [this, from, to] {
    PartOver(from);
    PartOver(to);
  });
}

void RingExchange::PartOver(std::size_t member) {
  if (++members_[member].parts == 2) Enter(member);
}

}  // namespace adaptive_train
