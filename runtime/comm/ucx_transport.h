// Messages by UCX.
#pragma once

#include <memory>

#include "core/result.h"
#include "runtime/comm/transport.h"

namespace adaptive_train {

/// Starts the one thread that owns this rank's UCX worker; it sleeps on the worker's event
/// descriptor and never spins. Blocks until the transports are open (UCX_* variables apply). The
/// destructor of what is returned closes the links and waits for the thread.
Result<std::unique_ptr<Transport>> OpenUcx();

}  // namespace adaptive_train
