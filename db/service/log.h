// The log of adaptive-traind: lines for people, with fields for the journal.
#pragma once

#include <syslog.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adaptive_train {

/// One line, and what it is about.
struct LogLine {
  LogLine(std::string words) : text(std::move(words)) {}  // NOLINT: most lines are only words
  LogLine(int how_grave, std::string words,
          std::vector<std::pair<std::string, std::string>> about = {})
      : priority(how_grave), text(std::move(words)), fields(std::move(about)) {}

  int priority = LOG_INFO;  // syslog(3)
  std::string text;
  /// Names of capital letters and underscores, and values.
  std::vector<std::pair<std::string, std::string>> fields;
};

/// From any thread.
using Log = std::function<void(const LogLine&)>;

/// To the journal where stderr is one, else to stderr as "adaptive-traind: text". A journal that
/// takes no message gets the line, with its priority before it as in sd-daemon(3). From any thread;
/// blocks as a write to stderr does.
void WriteLog(const LogLine& line);

/// Whether `stream` ("device:inode", systemd.exec(5)'s JOURNAL_STREAM) is this descriptor.
bool IsJournal(std::string_view stream, int descriptor);
/// The line as one message of systemd.io/JOURNAL_NATIVE_PROTOCOL.
std::string ToJournal(const LogLine& line);

}  // namespace adaptive_train
