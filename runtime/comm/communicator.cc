#include "runtime/comm/communicator.h"

#include <cassert>
#include <numeric>
#include <utility>

#include "runtime/comm/ucx_transport.h"

namespace adaptive_train {
namespace {

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Communicator::Communicator(int rank, int size, std::unique_ptr<Transport> transport)
    : rank_(rank),
      size_(size),
      transport_(std::move(transport)),
      world_(*this, GroupKind::kWorld, AllRanks(size)) {}

Result<std::unique_ptr<Communicator>> Communicator::Open(int rank, int size) {
  auto transport = OpenUcx();
  if (!transport) return tl::unexpected(transport.error());
  return std::make_unique<Communicator>(rank, size, std::move(*transport));
}

void Communicator::Connect(std::vector<std::string> addresses) {
  assert(addresses.size() == static_cast<std::size_t>(size_));
  transport_->SetPeers(std::move(addresses));
}

}  // namespace adaptive_train
