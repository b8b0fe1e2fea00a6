// TensorBoard event files: scalars by step.
//
// A file is a sequence of TFRecords, each one Event message in protobuf encoding:
//
//   uint64  length of the message, little-endian (as all that follows)
//   uint32  masked CRC32C of those 8 bytes
//   bytes   the message
//   uint32  masked CRC32C of the message; masked(c) = rotate_right(c, 15) + 0xa282ead8
//
//   Event       1 wall_time double (seconds since 1970) · 2 step int64 · one of 3 file_version
//   string,
//               5 summary Summary, 7 session_log SessionLog
//   Summary     1 value Value, repeated
//   Value       1 tag string · 2 simple_value float
//   SessionLog  1 status enum, START = 1
//
// The first message has file_version "brain.Event:2". The second is a SessionLog START whose step
// is the first that this file will hold. TensorBoard then drops that step and later ones from
// earlier files of the folder, so that steps repeated after a resume do not show twice. It reads the
// files of a folder in the order of their names, events.out.tfevents.TIME.HOST.PID. TIME is larger
// than in every existing file, whatever the clock says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// One point of a curve.
struct Scalar {
  std::string_view tag;  // "loss/train": TensorBoard groups by what comes before the slash
  double value = 0;      // stored as float; may be NaN or infinite
};

/// One event file, only written. Not thread-safe; calls block as the file system does.
class EventFile {
 public:
  /// Creates a new file in `folder`, and the folder if missing. `first_step` is the first step that
  /// will be added; `wall_time` is seconds since 1970.
  static Result<EventFile> Create(const std::string& folder, std::int64_t first_step,
                                  double wall_time);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&&) = delete;
  ~EventFile();

  /// Adds one event with all scalars of a step; it is in the file when the call returns. If the
  /// disk is full, a partial event is removed again. ESTALE: another client of a network file
  /// system has removed the file.
  Result<void> Add(std::int64_t step, double wall_time, std::span<const Scalar> scalars);

  const std::string& Path() const { return path_; }

 private:
  EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Result<void> Append(const std::string& record);

  std::string path_;
  int fd_;
};

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`.
std::uint32_t Crc32c(std::string_view bytes);

}  // namespace adaptive_train
