#include "device/copies.hpp"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.hpp"

namespace spillway::device {
namespace {

void move_bytes(const Copy& copy) {
  if (copy.bytes.value > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes.value));
}

}  // namespace

struct CopyEvent::State {
  Seconds end;
  Interval ran{};
  std::atomic<bool> done = false;

  void finish() {
    done.store(true, std::memory_order_release);
    done.notify_all();
  }
};

bool CopyEvent::done() const { return state_ == nullptr || state_->done.load(std::memory_order_acquire); }

void CopyEvent::wait() const {
  if (state_ != nullptr) state_->done.wait(false, std::memory_order_acquire);
}

Seconds CopyEvent::end() const { return state_ == nullptr ? Seconds(0) : state_->end; }

Interval CopyEvent::ran() const { return state_ == nullptr ? Interval{} : state_->ran; }

/// On the wall clock a queue and the thread that empties it.
struct CopyEngine::Lane {
  struct Job {
    Copy copy;
    std::shared_ptr<CopyEvent::State> state;
  };

  explicit Lane(const Clock& rank_clock) : clock(rank_clock) {}

  const Clock& clock;  // restarts only while no copy is under way
  std::atomic<double> busy = 0.0;
  std::mutex mutex;  // of queue and stopping
  std::condition_variable wake;
  std::deque<Job> queue;
  bool stopping = false;
  std::thread thread;

  void issue(Job job) {
    start();
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(job));
    }
    wake.notify_one();
  }
  void start() try {
    if (!thread.joinable()) thread = std::thread([this] { empty_queue(); });
  } catch (const std::system_error& error) {
    throw EnvironmentError(
        fmt::format("cannot start a thread for copies between device and host: {}; a rank needs one per direction: "
                    "raise the limit on processes (ulimit -u)",
                    error.what()));
  }
  void empty_queue() noexcept {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      const Job job = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      carry_out(job);
      lock.lock();
    }
  }
  void carry_out(const Job& job) {
    if (job.copy.after) job.copy.after->wait();
    Interval& ran = job.state->ran;
    ran.start = clock.now();
    move_bytes(job.copy);
    ran.end = clock.now();
    busy.fetch_add(ran.duration().value);
    job.state->finish();
  }
  /// Lets the thread end once the queue is empty.
  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_one();
  }
};

CopyEngine::CopyEngine(Clock& clock, bool moves_data)
    : clock_(clock), moves_data_(moves_data), lanes_{std::make_unique<Lane>(clock), std::make_unique<Lane>(clock)} {}

CopyEngine::~CopyEngine() {
  for (const auto& lane : lanes_) lane->stop();
  for (const auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
}

CopyEvent CopyEngine::copy(CopyLane lane, const Copy& copy) {
  Lane& l = *lanes_[static_cast<std::size_t>(lane)];
  CopyEvent event;
  event.state_ = std::make_shared<CopyEvent::State>();
  if (!clock_.is_virtual()) {
    l.issue({copy, event.state_});
    return event;
  }
  const Seconds ready = copy.after ? std::max(copy.ready, copy.after->end()) : copy.ready;
  const Interval interval = clock_.copy(lane, ready, copy.bytes);
  if (moves_data_) move_bytes(copy);
  l.busy.fetch_add(interval.duration().value);
  event.state_->end = interval.end;
  event.state_->ran = interval;
  event.state_->finish();
  return event;
}

Seconds CopyEngine::busy(CopyLane lane) const { return Seconds(lanes_[static_cast<std::size_t>(lane)]->busy.load()); }

void CopyEngine::reset_busy() {
  for (const auto& lane : lanes_) lane->busy.store(0.0);
}

}  // namespace spillway::device
