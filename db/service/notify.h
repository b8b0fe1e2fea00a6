// Tells the service manager how adaptive-traind fares, as sd_notify(3) describes.
#pragma once

#include <string_view>

namespace adaptive_train {

/// Sends `state`, such as "READY=1", to the socket that NOTIFY_SOCKET names. Does nothing where
/// there is none. Does not wait for an answer.
void NotifyManager(std::string_view state);

}  // namespace adaptive_train
