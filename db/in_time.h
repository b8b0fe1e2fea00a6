// Calls that cannot be given a deadline, within one.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace adaptive_train {

/// What `call` returns by `deadline`; none if it does not, or no thread is to be had. Its thread
/// then goes on, so that `call` must own all that it uses.
template <class T>
std::optional<T> InTime(std::chrono::steady_clock::time_point deadline, std::function<T()> call) {
  auto returned = std::make_shared<std::promise<T>>();
  auto future = returned->get_future();
  try {
    std::thread([returned, call = std::move(call)] { returned->set_value(call()); }).detach();
  } catch (const std::system_error&) {
    return std::nullopt;  // the system gives no thread more
  }
  if (future.wait_until(deadline) != std::future_status::ready) return std::nullopt;
  return future.get();
}

}  // namespace adaptive_train
