#include "db/service/introduction.h"

#include <fmt/format.h>

#include "core/file_io.h"
#include "core/token_proof.h"
#include "db/munge.h"
#include "db/service/caller.h"

namespace adaptive_train {

Result<Introduction> Introduce(const std::string& credential, const std::string& nonce,
                               const ServiceName& self) {
  const auto said = MungeDecode(credential, self.munge_socket);
  if (!said) return tl::unexpected(said.error());
  if (auto known = CheckKnown(said->writer); !known) return tl::unexpected(known.error());
  auto offer = ReadSessionOffer(said->text);
  if (!offer) return tl::unexpected(offer.error());
  if (offer->service != self.address)
    return Fail(
        fmt::format("you look for adaptive-traind at {}, and this one is at {}: `store` and "
                    "its --tcp must name it alike",
                    Printable(offer->service, 100), self.address),
        ExitCode::kStore);
  if (!SameProof(offer->service_nonce, nonce))
    return Fail("the credential was made for another connection", ExitCode::kStore);
  auto acceptance = MungeEncode(AcceptanceOf(*offer), said->writer, self.munge_socket);
  if (!acceptance) return tl::unexpected(acceptance.error());
  return Introduction{said->writer, std::move(*offer), std::move(*acceptance)};
}

}  // namespace adaptive_train
