// Reads files of /proc and /sys, which are small, and absent on some machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace adaptive_train::probe {

/// The text of a file without its last line end; none if it cannot be read or is larger than 1 MiB.
std::optional<std::string> ReadSmallFile(const std::string& path);

/// The integer at the start of a file; none if there is none.
std::optional<long long> ReadNumber(const std::string& path);

/// The names in a folder, sorted, without . and ..; empty if it cannot be read.
std::vector<std::string> ListFolder(const std::string& path);

/// FOLDER/NAME.
std::string Below(const std::string& folder, const std::string& name);

/// The PCI address (0000:3b:00.0) of the device that a link in /sys points to or is below; empty if
/// there is none.
std::string PciAddressOf(const std::string& device_link);

}  // namespace adaptive_train::probe
