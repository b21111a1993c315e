#include "device/host/worker.hpp"

#include <chrono>
#include <exception>
#include <system_error>

#include "base/error.hpp"

namespace spillway::device {
namespace {

using Time = std::chrono::steady_clock;
/// So long the thread looks for news without a pause: a message between neighbours takes less.
constexpr std::chrono::microseconds eager(100);
/// Then it leaves its core to others in between.
constexpr std::chrono::microseconds nap(20);

}  // namespace

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    giving_up_ = poll_ && std::uncaught_exceptions() > 0;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::issue(std::function<void()> job) {
  start();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Worker::start() try {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
} catch (const std::system_error& error) {
  throw EnvironmentError(
      fmt::format("cannot start a thread for {}: {}; a rank needs three beside its own: raise the limit "
                  "on processes (ulimit -u)",
                  purpose_, error.what()));
}

void Worker::work() noexcept {
  std::unique_lock lock(mutex_);
  const auto called = [this] { return stopping_ || !jobs_.empty(); };
  Time::time_point last_news = Time::now();
  bool under_way = false;
  while (!giving_up_) {
    if (!jobs_.empty()) {
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      under_way = poll_ && poll_();
      lock.lock();
      last_news = Time::now();
    } else if (under_way) {
      lock.unlock();
      under_way = poll_();
      lock.lock();
      if (under_way && Time::now() - last_news > eager) wake_.wait_for(lock, nap, called);
    } else if (stopping_) {
      return;
    } else {
      wake_.wait(lock, called);
    }
  }
}

}  // namespace spillway::device
