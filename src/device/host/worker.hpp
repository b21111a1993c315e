#pragma once
// A thread that carries out jobs in the order of issue, beside the thread that issues them.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

namespace spillway::device {

/// Starts a thread; `purpose`: what it is for, said where it cannot be started (EnvironmentError).
std::thread start_thread(std::string_view purpose, std::function<void()> work);

class Worker {
 public:
  explicit Worker(std::string_view purpose) : purpose_(purpose) {}
  /// Returns when all jobs are done.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Returns at once. The thread begins with the first job; throws EnvironmentError when it cannot.
  void issue(std::function<void()> job);

 private:
  void work() noexcept;

  std::string_view purpose_;
  std::mutex mutex_;  // of jobs_ and stopping_
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spillway::device
