#include "run/watchdog.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"

namespace spillway {

Watchdog::Watchdog(Seconds limit, std::string who) : limit_(limit.value), who_(std::move(who)) {
  if (limit.value > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  unsigned long long seen = steps_.load();
  while (!wake_.wait_for(lock, limit_, [this] { return stopping_; })) {
    const unsigned long long now = steps_.load();
    if (now == seen) {
      // The main thread may sit inside MPI, so MPI cannot be asked: leaving without finalizing makes the launcher end
      // the job.
      fmt::print(stderr,
                 "spillway: error: {}: nothing has moved for {} s (last: {}); another rank is gone or stuck. "
                 "training.watchdog_seconds sets this limit\n",
                 who_, limit_.count(), where_.load());
      std::fflush(stderr);
      std::_Exit(static_cast<int>(ExitCode::environment));
    }
    seen = now;
  }
}

}  // namespace spillway
