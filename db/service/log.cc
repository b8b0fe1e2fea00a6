#include "db/service/log.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace adaptive_train {
namespace {

constexpr const char* kJournal = "/run/systemd/journal/socket";
constexpr const char* kName = "adaptive-traind";

/// A value with a line end goes with its length: eight bytes, the lowest first.
void AddField(std::string_view name, std::string_view value, std::string& message) {
  message += name;
  if (value.find('\n') == value.npos) {
    message += '=';
  } else {
    message += '\n';
    for (int byte = 0; byte < 8; ++byte)
      message += static_cast<char>(std::uint64_t{value.size()} >> (8 * byte));
  }
  message += value;
  message += '\n';
}

bool SendToJournal(const std::string& message) {
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string_view(kJournal).copy(address.sun_path, sizeof address.sun_path - 1);
  const auto sent =
      ::sendto(descriptor, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(descriptor);
  return sent >= 0;
}

}  // namespace

bool IsJournal(std::string_view stream, int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 &&
         stream == fmt::format("{}:{}", info.st_dev, info.st_ino);
}

std::string ToJournal(const LogLine& line) {
  std::string message;
  AddField("MESSAGE", line.text, message);
  AddField("PRIORITY", std::to_string(line.priority), message);
  AddField("SYSLOG_IDENTIFIER", kName, message);
  for (const auto& [name, value] : line.fields) AddField(name, value, message);
  return message;
}

void WriteLog(const LogLine& line) {
  static const bool journal = [] {
    const char* stream = std::getenv("JOURNAL_STREAM");
    return stream != nullptr && IsJournal(stream, STDERR_FILENO);
  }();
  if (journal && SendToJournal(ToJournal(line))) return;
  const std::string priority = journal ? fmt::format("<{}>", line.priority) : "";
  std::fputs(fmt::format("{}{}: {}\n", priority, kName, line.text).c_str(), stderr);
}

}  // namespace adaptive_train
