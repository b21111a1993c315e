#include "plan/cost/operator_cost.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/cost/time_model.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

using Table = std::vector<OperatorRow>;

bool contains(const std::vector<Tensor>& list, Tensor t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

Bytes bytes_of(const CostSituation& s, Tensor t) { return bytes(t, s.context, s.rows); }

bool read_by_backward(const Table& table, Tensor t) {
  return std::any_of(table.begin(), table.end(), [t](auto& row) { return contains(row.backward.reads, t); });
}

std::vector<Tensor> saved_of(const Table& table) {
  std::vector<Tensor> saved;
  if (read_by_backward(table, Tensor::block_input)) saved.push_back(Tensor::block_input);
  for (const OperatorRow& row : table)
    for (const Tensor t : row.forward.writes)
      if (read_by_backward(table, t) && !contains(saved, t)) saved.push_back(t);
  return saved;
}

/// True where no operator before this one, in the order of the pass, writes what both accumulate into.
bool writes_first(const Table& table, Op op, PassKind pass) {
  const Tensor shared = pass == PassKind::forward ? Tensor::block_output : Tensor::d_mlp_norm_output;
  const auto writes = [&](const OperatorRow& row) {
    return contains(pass == PassKind::forward ? row.forward.writes : row.backward.writes, shared);
  };
  if (pass == PassKind::forward) {
    const auto first = std::find_if(table.begin(), table.end(), writes);
    return first != table.end() && first->op == op;
  }
  const auto first = std::find_if(table.rbegin(), table.rend(), writes);
  return first != table.rend() && first->op == op;
}

std::vector<int> nodes_of(const CostSituation& s) {
  if (!s.nodes.empty()) return s.nodes;
  std::vector<int> nodes(static_cast<std::size_t>(s.context.expert_parallel));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = node_of(s.machine, static_cast<int>(i));
  return nodes;
}

/// Of a message in which every tensor-parallel rank receives `received`; such groups are the ranks that follow each other.
Seconds tensor_parallel_seconds(const CostSituation& s, Bytes received) {
  const auto members = static_cast<std::size_t>(s.context.tensor_parallel);
  std::vector<int> nodes(members);
  for (std::size_t i = 0; i < members; ++i) nodes[i] = node_of(s.machine, static_cast<int>(i));
  return received.value > 0 ? all_to_all_seconds(s.machine, std::vector<Bytes>(members, received), nodes) : Seconds(0);
}

Seconds exchange_seconds(const CostSituation& s, Bytes received) {
  const std::vector<int> nodes = nodes_of(s);
  return all_to_all_seconds(s.machine, std::vector<Bytes>(nodes.size(), received), nodes);
}

/// Every member's rows per expert, free bytes and free host bytes.
Bytes gate_table_bytes(const BlockContext& c) {
  return Bytes(c.expert_parallel * (c.shape.num_experts + 2) * static_cast<std::int64_t>(sizeof(std::int64_t)));
}

/// Saved tensors that this direction of the operator adds or releases: forward adds what it is the first to write (and
/// the block's input where it is the first to read it), backward releases what no later backward pass reads.
Bytes saved_by(const CostSituation& s, const Table& table, Op op, PassKind pass) {
  Bytes sum;
  for (const Tensor t : saved_of(table)) {
    const auto owner = std::find_if(table.begin(), table.end(), [&](const OperatorRow& row) {
      if (pass == PassKind::backward) return contains(row.backward.reads, t);
      return contains(t == Tensor::block_input ? row.forward.reads : row.forward.writes, t);
    });
    if (owner->op == op) sum += bytes_of(s, t);
  }
  return pass == PassKind::forward ? sum : Bytes(0) - sum;
}

OperatorCost cost_of(const CostSituation& s, const Table& table, const OperatorRow& row, PassKind pass) {
  const OperatorWork work = operator_work(row.op, pass, s.context, s.rows, writes_first(table, row.op, pass));
  OperatorCost cost;
  cost.compute = compute_seconds(s.machine, work.flops, work.bytes) +
                 compute_seconds(s.machine, Flops(0), work.bytes_after_message);
  if (row.collective == Collective::expert_all_to_all) cost.network = exchange_seconds(s, work.received);
  if (row.collective == Collective::tensor_parallel)
    cost.network = tensor_parallel_seconds(s, work.gathered) + tensor_parallel_seconds(s, work.received);
  if (row.collective == Collective::gate_table && pass == PassKind::forward)
    cost.network = exchange_seconds(s, gate_table_bytes(s.context));
  cost.saved = saved_by(s, table, row.op, pass);
  return cost;
}

/// Finds the operators to repeat, those that make what others read before them.
class Repetition {
 public:
  Repetition(BlockKind kind, const BlockContext& context, TensorSet dropped) : table_(operator_table(kind, context)) {
    available_.insert(Tensor::block_input);
    const std::vector<Tensor> saved = saved_of(table_);
    for (const Tensor t : saved)
      if (!dropped.contains(t)) available_.insert(t);
    for (const Tensor t : saved)
      if (dropped.contains(t)) provide(t);
  }
  std::vector<Op> operators;

 private:
  void provide(Tensor t) {
    if (available_.contains(t)) return;
    const auto maker = std::find_if(table_.begin(), table_.end(),
                                    [t](const OperatorRow& row) { return contains(row.forward.writes, t); });
    ensure(maker != table_.end(), "no operator makes {}", name(t));
    for (const Tensor input : maker->forward.reads) provide(input);
    operators.push_back(maker->op);
    for (const Tensor made : maker->forward.writes) available_.insert(made);
  }

  Table table_;
  TensorSet available_;
};

}  // namespace

OperatorCost& OperatorCost::operator+=(const OperatorCost& o) {
  compute += o.compute;
  network += o.network;
  saved += o.saved;
  return *this;
}

std::vector<Tensor> saved_tensors(BlockKind kind, const BlockContext& context) {
  return saved_of(operator_table(kind, context));
}

Bytes saved_bytes(BlockKind kind, const BlockContext& context, ExpertRows rows) {
  Bytes sum;
  for (const Tensor t : saved_tensors(kind, context)) sum += bytes(t, context, rows);
  return sum;
}

OperatorCost operator_cost(const CostSituation& s, Op op, PassKind pass) {
  const Table table = operator_table(s.kind, s.context);
  const auto row = std::find_if(table.begin(), table.end(), [op](const OperatorRow& r) { return r.op == op; });
  ensure(row != table.end(), "a {} block has no operator {}", name(s.kind), name(op));
  return cost_of(s, table, *row, pass);
}

OperatorCost block_cost(const CostSituation& s, PassKind pass) {
  const Table table = operator_table(s.kind, s.context);
  OperatorCost sum;
  for (const OperatorRow& row : table) sum += cost_of(s, table, row, pass);
  return sum;
}

std::string_view name(MitigationStrategy strategy) {
  constexpr std::string_view names[] = {"recompute", "offload", "quantize"};
  return names[static_cast<std::size_t>(strategy)];
}

std::vector<Op> repeated_operators(BlockKind kind, const BlockContext& context, TensorSet dropped) {
  return Repetition(kind, context, dropped).operators;
}

MitigationCost recompute_cost(const CostSituation& s, TensorSet dropped) {
  MitigationCost cost;
  for (const Tensor t : saved_tensors(s.kind, s.context))
    if (dropped.contains(t)) cost.freed += bytes_of(s, t);
  for (const Op op : repeated_operators(s.kind, s.context, dropped)) {
    const OperatorCost again = operator_cost(s, op, PassKind::forward);
    cost.compute += again.compute;
    cost.network += again.network;
  }
  return cost;
}

std::optional<MitigationCost> mitigation_cost(const CostSituation& s, Tensor tensor, MitigationStrategy strategy) {
  const std::vector<Tensor> saved = saved_tensors(s.kind, s.context);
  ensure(contains(saved, tensor), "{} does not wait for backward in a {} block", name(tensor), name(s.kind));
  const Bytes kept = bytes_of(s, tensor);
  switch (strategy) {
    case MitigationStrategy::recompute:
      if (tensor == Tensor::block_input) return std::nullopt;
      return recompute_cost(s, {tensor});
    case MitigationStrategy::offload: {
      const Seconds copy = copy_seconds(s.machine, kept);
      return MitigationCost{s.machine.shared_memory ? Bytes(0) : kept, {}, {}, copy, copy};
    }
    case MitigationStrategy::quantize: {
      const Bytes stored = quantized_bytes(extent(tensor, s.context, s.rows).elements());
      const Seconds cast = compute_seconds(s.machine, Flops(0), kept + stored);
      return MitigationCost{std::max(kept - stored, Bytes(0)), cast + cast, {}, {}, {}};
    }
  }
  return std::nullopt;
}

}  // namespace spillway
