#include "db/munge.h"

#include <munge.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace adaptive_train {
namespace {

struct DestroyContext {
  void operator()(munge_ctx_t context) const { ::munge_ctx_destroy(context); }
};
using Context = std::unique_ptr<munge_ctx, DestroyContext>;

Result<Context> NewContext(const std::string& socket) {
  Context context(::munge_ctx_create());
  if (!context) return Fail("munge: out of memory", ExitCode::kStore);
  if (!socket.empty() &&
      ::munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, socket.c_str()) != EMUNGE_SUCCESS)
    return Fail("munge: the socket " + socket + " is not taken", ExitCode::kStore);
  return context;
}

tl::unexpected<Error> FailMunge(const Context& context, munge_err_t error) {
  const char* why = ::munge_ctx_strerror(context.get());
  return Fail("munge: " + std::string(why != nullptr ? why : ::munge_strerror(error)),
              ExitCode::kStore);
}

}  // namespace

Result<std::string> MungeEncode(const std::string& text, uid_t reader, const std::string& socket) {
  auto context = NewContext(socket);
  if (!context) return tl::unexpected(context.error());
  // A site's default may be no cipher.
  munge_err_t error =
      ::munge_ctx_set(context->get(), MUNGE_OPT_CIPHER_TYPE, static_cast<int>(MUNGE_CIPHER_AES256));
  if (error == EMUNGE_SUCCESS)
    error = ::munge_ctx_set(context->get(), MUNGE_OPT_UID_RESTRICTION, reader);
  char* credential = nullptr;
  if (error == EMUNGE_SUCCESS)
    error = ::munge_encode(&credential, context->get(), text.data(), static_cast<int>(text.size()));
  if (error != EMUNGE_SUCCESS) return FailMunge(*context, error);
  std::string made(credential);
  std::free(credential);
  return made;
}

Result<MungeText> MungeDecode(const std::string& credential, const std::string& socket) {
  auto context = NewContext(socket);
  if (!context) return tl::unexpected(context.error());
  void* bytes = nullptr;
  int size = 0;
  MungeText decoded;
  const munge_err_t error =
      ::munge_decode(credential.c_str(), context->get(), &bytes, &size, &decoded.writer, nullptr);
  if (bytes != nullptr) {
    decoded.text.assign(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
    std::free(bytes);
  }
  if (error != EMUNGE_SUCCESS) return FailMunge(*context, error);
  int cipher = MUNGE_CIPHER_NONE;
  uid_t reader = static_cast<uid_t>(MUNGE_UID_ANY);
  ::munge_ctx_get(context->get(), MUNGE_OPT_CIPHER_TYPE, &cipher);
  ::munge_ctx_get(context->get(), MUNGE_OPT_UID_RESTRICTION, &reader);
  if (cipher == MUNGE_CIPHER_NONE)
    return Fail("munge: the credential was not encrypted", ExitCode::kStore);
  if (reader != ::geteuid())
    return Fail("munge: the credential may be decoded by others, too", ExitCode::kStore);
  return decoded;
}

}  // namespace adaptive_train
