#include "launcher/steps/programs.h"

#include <unistd.h>

#include <filesystem>

namespace adaptive_train {

Result<Programs> FindPrograms() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail("/proc/self/exe: " + error.message(), ExitCode::kPreflight);
  const auto folder = self.parent_path();
  Programs programs{self.string(), (folder / "adaptive-train-worker").string(),
                    (folder / "adaptive-train-probe").string()};
  for (const std::string& path : {programs.worker, programs.probe}) {
    if (::access(path.c_str(), X_OK) != 0)
      return Fail(path + ": not there or not executable; the installation is incomplete",
                  ExitCode::kPreflight);
  }
  return programs;
}

}  // namespace adaptive_train
