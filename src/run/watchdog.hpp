#pragma once
// Ends a job that no longer moves: a rank that waits for another that is dead or stuck says where and leaves, so that the
// launcher ends the rest.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/units.hpp"

namespace spillway {

class Watchdog {
 public:
  /// Watches until destroyed; a limit of 0 watches nothing. `who` names the rank in the message.
  Watchdog(Seconds limit, std::string who);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Something moved. `where` must outlive the watchdog (a literal or an operator's name).
  void touch(const char* where) {
    where_.store(where, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  void watch();

  std::chrono::duration<double> limit_;
  std::string who_;
  std::atomic<unsigned long long> steps_{0};
  std::atomic<const char*> where_{"start"};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spillway
