// What doctor looks at of the network: the launcher's interface, and what UCX is told to use.
#pragma once

#include <string>

#include "core/config.h"
#include "launcher/doctor/finding.h"

namespace adaptive_train {

/// Whether launch.interface has an address here. Sends nothing.
Finding CheckInterface(const LaunchConfig& launch);

/// The text of UCX_NET_DEVICES ("" where it is not set) against the devices below ROOT/sys.
Finding CheckUcxDevices(const std::string& named, const std::string& root = "");

/// Whether the text of UCX_TLS ("" where it is not set) allows a transport between hosts.
Finding CheckUcxTransports(const std::string& named);

}  // namespace adaptive_train
