// The transport over UCX.
#pragma once

#include <memory>

#include "core/result.h"
#include "runtime/comm/transport.h"

namespace adaptive_train {

/// Starts the one thread that owns this rank's UCX worker. It sleeps on the worker's event
/// descriptor and never spins. Blocks until the transports are open (UCX_* variables apply). The
/// destructor of the result closes the links and waits for the thread.
Result<std::unique_ptr<Transport>> OpenUcx();

}  // namespace adaptive_train
