#include "device/host/worker.hpp"

#include <system_error>

#include "base/error.hpp"

namespace spillway::device {

std::thread start_thread(std::string_view purpose, std::function<void()> work) try {
  return std::thread(std::move(work));
} catch (const std::system_error& error) {
  throw EnvironmentError(
      fmt::format("cannot start a thread for {}: {}; a rank needs up to three beside its own: raise the "
                  "limit on processes (ulimit -u)",
                  purpose, error.what()));
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::issue(std::function<void()> job) {
  if (!thread_.joinable()) thread_ = start_thread(purpose_, [this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Worker::work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace spillway::device
