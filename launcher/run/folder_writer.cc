#include "launcher/run/folder_writer.h"

#include <utility>

namespace adaptive_train {

void FolderWriter::Write(std::string name, std::string text) {
  // A failure is told, and the next write may succeed: the writer goes on.
  (void)writer_.Post([this, name = std::move(name), text = std::move(text)]() -> Result<void> {
    if (auto written = folder_.Write(name, text); !written) {
      const std::lock_guard lock(mutex_);
      failure_ = written.error();
    }
    return {};
  });
}

std::optional<Error> FolderWriter::TakeFailure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, std::nullopt);
}

}  // namespace adaptive_train
