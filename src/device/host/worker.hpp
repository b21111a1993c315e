#pragma once
// A thread that carries out jobs in the order of issue, beside the thread that issues them.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace spillway::device {

class Worker {
 public:
  /// `purpose`: what the thread is for, said where it cannot be started. `poll`: called between jobs, and over and over as
  /// long as it returns true, which says that something is still under way.
  explicit Worker(std::string purpose, std::function<bool()> poll = nullptr)
      : purpose_(std::move(purpose)), poll_(std::move(poll)) {}
  /// Returns when all jobs are done and nothing is under way. A thread that polls waits for others: while an exception
  /// unwinds, it leaves what is under way.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Returns at once. The thread begins with the first job; throws EnvironmentError when it cannot.
  void issue(std::function<void()> job);

 private:
  void start();
  void work() noexcept;

  std::string purpose_;
  std::function<bool()> poll_;
  std::mutex mutex_;  // of jobs_, stopping_ and giving_up_
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false, giving_up_ = false;
  std::thread thread_;
};

}  // namespace spillway::device
