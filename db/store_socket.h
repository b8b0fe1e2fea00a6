// Sockets to adaptive-traind.
#pragma once

#include <chrono>

#include "core/result.h"
#include "db/store_location.h"

namespace adaptive_train {

using StoreDeadline = std::chrono::steady_clock::time_point;

/// Waits until the socket is ready for `events` (poll(2)); false at the deadline.
bool AwaitSocket(int descriptor, short events, StoreDeadline deadline);

/// A connected socket that does not block and is closed by exec; the caller closes it. Errors are
/// one line without the store's name.
Result<int> ConnectTo(const StoreLocation& location, StoreDeadline deadline);

// For errors: what errno says, and that it took too long.
tl::unexpected<Error> FailConnection(const std::string& doing);
tl::unexpected<Error> FailLate();

}  // namespace adaptive_train
