#pragma once
// One iteration of a policy on all ranks without data: the same plans, books, lanes and formulas as the executor, loads
// from the routing. What the virtual clock of a real run will show, before it is run.
#include <coroutine>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/clock.hpp"
#include "metrics/step_record.hpp"
#include "plan/work_order.hpp"
#include "run/case.hpp"
#include "run/load_source.hpp"

namespace spillway {

/// What a projected iteration gives for every rank.
struct ProjectedIteration {
  IterationRecord record;  ///< without loss and checksum, which need data
  std::vector<RankIteration> ranks;
};

/// Takes part in a collective or waits for a message: everything a rank cannot do alone.
struct Meeting {
  enum class Kind : unsigned char {
    gate,
    expert_exchange,
    tensor_exchange,
    dense_gradients,
    expert_gradients,
    plane_gradients,
    message
  } kind{};
  Seconds start;   ///< when this rank could begin
  Bytes received;  ///< by this rank
  // of a message
  int from = 0;  ///< world rank
  bool backward = false;
  int tag = 0;
};

/// Where the ranks that share a group's parameters meet.
constexpr Meeting::Kind gradient_kind(ParameterGroup group) {
  return group == ParameterGroup::dense    ? Meeting::Kind::dense_gradients
         : group == ParameterGroup::expert ? Meeting::Kind::expert_gradients
                                           : Meeting::Kind::plane_gradients;
}

/// A rank's iteration, suspended wherever it needs others.
class RankProcess {
 public:
  struct promise_type {
    Meeting meeting;
    std::exception_ptr failure;
    RankProcess get_return_object() { return RankProcess(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(const Meeting& m) {
      meeting = m;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { failure = std::current_exception(); }
  };
  explicit RankProcess(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  RankProcess(RankProcess&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess() {
    if (handle_) handle_.destroy();
  }
  bool done() const { return handle_.done(); }
  const Meeting& meeting() const { return handle_.promise().meeting; }
  /// Runs on to the next meeting or the end; rethrows what went wrong.
  void resume() {
    handle_.resume();
    if (handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

struct ProjectedRank;

class Projection {
 public:
  struct Setup {
    const Case& run_case;
    const RoutingSource& routing;
    const Schedule& schedule;
    const device::TimeModel& time;
    std::string policy;
  };
  /// A policy object for every rank: by default those of the table.
  using PolicyOf = std::function<std::unique_ptr<Policy>(int rank)>;
  explicit Projection(Setup setup, const PolicyOf& policy_of = {});
  ~Projection();

  ProjectedIteration run(std::int64_t iteration);
  /// The plan of a rank as its last iteration left it.
  const StepPlan& plan(int rank) const;
  /// Device memory of a rank since the projection began, and what it offloaded to the host tier.
  const ByteLedger& ledger(int rank) const;
  const ByteLedger& host_ledger(int rank) const;

 private:
  using Rank = ProjectedRank;
  RankProcess process(Rank& rank, std::int64_t iteration);
  void clear_gradients(Rank& rank);
  void count_traffic(Rank& rank, std::int64_t iteration, const Item& item, const Instruction& instruction);
  bool ready_to_go_on(Rank& rank);
  void settle(const std::vector<int>& members);
  void count_loads(IterationRecord& record) const;
  std::vector<int> members(const Rank& rank, Meeting::Kind kind) const;

  Setup setup_;
  Grid grid_;
  LoadSource loads_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::array<int, 4>, Seconds> messages_;  ///< by [from, to, backward, tag]: when they arrive
};

}  // namespace spillway
