#pragma once
// Carries out the instructions of a block program with real tensors: one device call, or a few, for every operator.
#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "device/collectives.hpp"
#include "device/row_map.hpp"
#include "plan/work_order.hpp"
#include "run/engine.hpp"
#include "run/lane_timer.hpp"
#include "workload/routing/routing_source.hpp"

namespace spillway {

/// Loads of one (layer, micro-batch) over the expert group, from the gate table.
struct GateLoad {
  double max_over_mean = 1;
};

/// Sums that must come out right at the end of an iteration whatever the policy: every token's weights add up to 1.
struct Conservation {
  double weight = 0;        ///< sum of the router weights of all rows received
  std::int64_t tokens = 0;  ///< tokens that this rank sent through a gate
};

class OperatorRunner {
 public:
  struct Setup {
    const Case& run_case;
    const RoutingSource& routing;
    std::span<const int> node_of_rank;  ///< by world rank, to tell traffic inside and between nodes
    /// Before every message, that all members of its group issue the same one, after as many reductions of gradients.
    bool checks_order = false;
  };
  OperatorRunner(Setup setup, Engine& engine, std::span<const StageBlock> blocks, LaneTimer& timer);

  void begin_iteration(std::int64_t iteration);
  /// Notes that reductions have been issued, which all members of a group must do between the same messages.
  void note_reductions() { ++reductions_; }
  /// Executes an operator's pass over `rows` of experts; its tensors have been allocated.
  void run(int micro_batch, int block, const Instruction& instruction, const ExpertRows& rows, Part part = Part::whole);
  /// Executes a cast to FP8 or back; both forms are there.
  void cast(int micro_batch, int block, const Instruction& instruction);
  /// Takes part in the instruction's messages with scratch rows of the right size and computes nothing.
  void drain(int micro_batch, int block, const Instruction& instruction);

  /// Returns when nothing uses memory any more that a message was begun with.
  void finish_messages() const {
    for (const auto& [where, dispatch] : dispatches_) dispatch.exchange.wait();
  }

  /// What this rank says at the next gate.
  void announce(const Offer& offer) { offer_ = offer; }
  /// What the last gate brought.
  StepPlan::Gate gate(int micro_batch, int block) const;
  /// The dispatch will be done in `slices` of `tiles_per_slice` tiles.
  void cut(int micro_batch, int block, std::int64_t tiles_per_slice, int slices);

  double loss() const { return loss_; }
  const Conservation& conservation() const { return conservation_; }
  /// Calls back for every gate of the iteration so far: (micro-batch, load).
  const std::vector<std::pair<int, GateLoad>>& gate_loads() const { return gate_loads_; }

 private:
  /// One instruction in its surroundings.
  struct Call {
    int micro_batch, block;
    const StageBlock& where;
    const Instruction& instruction;
    Seconds ready;  ///< when all its inputs are
    Part part = Part::whole;
  };
  device::Matrix<float> tensor(const Call& call, Tensor t) const {
    return engine_.activations.get({call.micro_batch, call.block, t});
  }
  device::Matrix<float> value(const Call& call, Parameter p) const { return engine_.parameters.value(call.block, p); }
  device::Matrix<float> gradient(const Call& call, Parameter p) const {
    return engine_.parameters.gradient(call.block, p);
  }
  const device::RowMap& map(const Call& call) const {
    const Dispatch& d = dispatches_.at({call.micro_batch, call.block});
    return call.instruction.slice < 0 ? d.whole : d.slices[static_cast<std::size_t>(call.instruction.slice)];
  }
  const device::Group& expert_group(const Instruction& instruction) const;
  const device::Group& tensor_group(const Instruction& instruction) const;
  const OperatorRow& row(int block, const Instruction& instruction) const;
  std::int64_t sequence(int micro_batch, std::int64_t position) const;

  Seconds forward(const Call& call);
  Seconds backward(const Call& call);
  // operators_dense.cpp
  void dense_forward(const Call& call);
  void dense_backward(const Call& call);
  void product_backward(const Call& call, Tensor x, Tensor dy, Tensor dx, Parameter weight);
  // operators_ends.cpp
  void ends_forward(const Call& call);
  void ends_backward(const Call& call);
  std::vector<std::int32_t> tokens(int micro_batch) const;
  // operators_tensor.cpp: what a tensor-parallel group computes together
  Seconds tensor_forward(const Call& call);
  Seconds tensor_backward(const Call& call);
  void drain_tensor(const Call& call);
  /// Rows of all tokens into gathered_rows.
  Seconds gather_tokens(const Call& call, Tensor mine);
  /// Partial sums that go to the ranks of their tokens.
  struct Sum {
    Tensor into;
    std::optional<Tensor> residual = {};  ///< it begins with a copy of this
    bool adds = false;                    ///< it begins with what is there
  };
  Seconds scatter_sums(const Call& call, const Sum& sum, Seconds ready);
  Seconds collective(device::Event event);
  Seconds divided_loss(const Call& call, Seconds ready);
  Seconds row_product(const Call& call, Tensor x, Parameter weight, const Sum& sum);
  /// Gradients where this rank has some columns of a matrix.
  struct ColumnProduct {
    Tensor x, dy, dx;
    Parameter weight;
  };
  Seconds column_backward(const Call& call, const ColumnProduct& p);
  Seconds row_backward(const Call& call, Tensor x, Tensor dx, Parameter weight);
  // operators_exchange.cpp
  /// What an exchange of rows does besides.
  struct Way {
    bool alone;     ///< the group is this rank: rows stay
    bool reorders;  ///< between the order of sources and that of experts
    bool sliced;    ///< one slice of the dispatch
    bool weights;   ///< router weights travel with the rows
  };
  static Way way(const Call& call);
  /// What a group of one does instead of a message: nothing, but it takes until `end`.
  device::Event nothing_sent(Seconds end) const { return device::Event::at({end, end}); }
  /// Collective over `members`: throws InternalError where one of them is about to issue another message. Always on the
  /// group's forward communicator, so that it is itself in order as long as the messages before were.
  void expect_same(const device::Group& members, const Call& call) const;
  /// Sends by `send`, which returns an event, unless that has been done, and tells when the rows are there; nothing where
  /// only the first part is asked for.
  template <class Send>
  std::optional<Seconds> message(const Call& call, const Send& send);
  Seconds dispatch_forward(const Call& call);
  Seconds dispatch_backward(const Call& call);
  void sum_slices(const Call& call);
  Seconds combine_forward(const Call& call);
  Seconds combine_backward(const Call& call);
  /// All-to-all of the call's expert group with the bytes it moves counted.
  device::Event exchange(const Call& call, const device::RowExchange& rows, Seconds ready);
  // operators_moe.cpp
  /// Experts of the micro-batch's tokens [tokens, k], as the workload imposes them.
  std::vector<std::int32_t> imposed_choices(const Call& call) const;
  Seconds gate(const Call& call);
  void experts_forward(const Call& call);
  void experts_backward(const Call& call);
  void unpermute_forward(const Call& call);
  void unpermute_backward(const Call& call);

  Setup setup_;
  Engine& engine_;
  std::span<const StageBlock> blocks_;
  LaneTimer& timer_;
  std::array<std::vector<std::vector<OperatorRow>>, 2> tables_;  // whole, in slices: per block
  /// Where the rows of one (micro-batch, block) go.
  struct Dispatch {
    GateTable table;
    std::vector<Offer> offers;
    device::RowMap whole;
    std::vector<device::RowMap> slices;
    device::Event exchange;  ///< whose first part has been issued
  };
  std::map<std::pair<int, int>, Dispatch> dispatches_;
  Offer offer_;
  std::vector<std::pair<int, GateLoad>> gate_loads_;
  Conservation conservation_;
  std::int64_t iteration_ = 0, reductions_ = 0;
  double loss_ = 0;
  std::vector<float> scratch_out_, scratch_in_;
};

}  // namespace spillway
