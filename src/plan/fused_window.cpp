#include "plan/fused_window.hpp"

#include <algorithm>

#include "plan/cost/time_model.hpp"

namespace spillway {
namespace {

/// Loads are told apart in steps of 1/8 of balance.
constexpr std::int64_t load_steps = 8;

bool exchanges_rows(const Instruction& i) {
  return i.action == Action::run && (i.op == Op::dispatch || i.op == Op::combine);
}

/// A message of `received` bytes to each of so many ranks in a row.
Seconds exchange_seconds(const MachineProfile& machine, std::int64_t members, Bytes received) {
  std::vector<int> nodes(static_cast<std::size_t>(members));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = node_of(machine, static_cast<int>(i));
  return all_to_all_seconds(machine, std::vector<Bytes>(nodes.size(), received), nodes);
}

/// Both messages of an operator that a tensor-parallel group computes together; such groups are ranks in a row.
Seconds tensor_parallel_seconds(const MachineProfile& machine, const BlockContext& c, const OperatorWork& work) {
  Seconds sum;
  for (const Bytes received : {work.gathered, work.received})
    if (received.value > 0) sum += exchange_seconds(machine, c.tensor_parallel, received);
  return sum;
}

/// Messages of a tensor-parallel group lie between the exchanges: its members must know the same ones.
bool takes_turns(const BlockContext& c) { return c.expert_parallel % c.tensor_parallel == 0; }

}  // namespace

std::vector<IssuedPart> parts_of(const std::vector<Instruction>& instructions, const BlockContext& context) {
  std::vector<IssuedPart> parts;
  for (const Instruction& i : instructions) {
    const bool two = exchanges_rows(i) && context.expert_parallel > 1;
    if (two) parts.push_back({&i, Part::begin});
    parts.push_back({&i, two ? Part::end : Part::whole});
  }
  return parts;
}

WindowPlanner::WindowPlanner(std::vector<StageBlock> blocks, MachineProfile machine)
    : blocks_(std::move(blocks)), machine_(std::move(machine)) {
  for (const StageBlock& b : blocks_) {
    const auto same = [&](const StageBlock& other) { return other.context == b.context; };
    alike_.push_back(static_cast<int>(std::find_if(blocks_.begin(), blocks_.end(), same) - blocks_.begin()));
  }
}

ExpertRows WindowPlanner::rounded(const WindowHalf& half) const {
  const BlockContext& c = blocks_[static_cast<std::size_t>(half.block)].context;
  const std::int64_t step = std::max<std::int64_t>(1, c.routed_rows() / load_steps);
  return {(half.rows.rows + step - 1) / step * step, c.local_experts(), {}};
}

const std::vector<IssuedPart>& WindowPlanner::parts(const std::vector<Instruction>& instructions, int block) {
  const auto found = parts_.find(&instructions);
  if (found != parts_.end()) return found->second;
  return parts_.emplace(&instructions, parts_of(instructions, blocks_[static_cast<std::size_t>(block)].context))
      .first->second;
}

const WindowPlanner::Durations& WindowPlanner::durations(const WindowHalf& half, const Instruction& i) {
  const BlockContext& c = blocks_[static_cast<std::size_t>(half.block)].context;
  const ExpertRows rows = rounded(half);
  const auto [found, is_new] =
      durations_.try_emplace({alike_[static_cast<std::size_t>(half.block)], i.op, i.pass, rows.rows});
  Durations& d = found->second;
  if (!is_new) return d;
  const OperatorWork work = operator_work(i.op, i.pass, c, rows, true);
  d.before = compute_seconds(machine_, work.flops, work.bytes);
  d.after = compute_seconds(machine_, Flops(0), work.bytes_after_message);
  if (work.gathered.value > 0 || (work.received.value > 0 && !exchanges_rows(i)))
    d.network = tensor_parallel_seconds(machine_, c, work);
  const bool is_gate = i.op == Op::gate && i.pass == PassKind::forward;
  if (c.expert_parallel == 1 || !(is_gate || exchanges_rows(i))) return d;
  const Bytes received = is_gate ? Bytes(c.expert_parallel * c.shape.num_experts * 8) : work.received;
  d.network = exchange_seconds(machine_, c.expert_parallel, received);
  return d;
}

/// A slice of an exchange counts as the whole in proportion: all slices together are one. A repeated exchange comes right
/// after the exchange before it: where exactly a rank repeats it depends on what else the rank recomputes.
WindowPlanner::Chain WindowPlanner::make_chain(const WindowHalf& half) {
  Chain chain;
  std::ptrdiff_t after_exchange = 0;
  const auto add = [&](Lane lane, Seconds seconds, std::size_t part, bool repeated) {
    if (seconds.value <= 0) return;
    const std::ptrdiff_t at = repeated ? after_exchange++ : std::ssize(chain.segments);
    chain.segments.insert(chain.segments.begin() + at, {lane, seconds, 0});
    chain.parts.insert(chain.parts.begin() + at, part);
  };
  int slices = 1;
  const std::span<const IssuedPart> rest = half.rest();
  for (const IssuedPart& p : rest) slices = std::max(slices, p.instruction->slice + 1);
  for (std::size_t n = 0; n < rest.size(); ++n) {
    const auto& [instruction, part] = rest[n];
    const bool repeats_exchange = instruction->recompute && exchanges_rows(*instruction);
    if (instruction->action != Action::run || (instruction->recompute && !repeats_exchange)) continue;
    const Durations& d = durations(half, *instruction);
    const double share = instruction->slice >= 0 ? 1.0 / slices : 1;
    if (part != Part::end) {
      add(Lane::compute, d.before * share, n, repeats_exchange);
      add(Lane::network, d.network * share, n, repeats_exchange);
      if (exchanges_rows(*instruction) && !repeats_exchange) after_exchange = std::ssize(chain.segments);
    }
    if (part != Part::begin) add(Lane::compute, d.after * share, n, repeats_exchange);
  }
  return chain;
}

std::size_t WindowPlanner::chain_of(const WindowHalf& half) {
  const auto [found, is_new] =
      numbers_.try_emplace({static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&half.parts)), half.done,
                            static_cast<std::uint64_t>(alike_[static_cast<std::size_t>(half.block)]),
                            static_cast<std::uint64_t>(rounded(half).rows)},
                           chains_.size());
  if (is_new) {
    chains_.push_back(make_chain(half));
    chains_.back().kind = kind_of(chains_.back().segments);
  }
  return found->second;
}

std::uint64_t WindowPlanner::kind_of(const std::vector<Segment>& segments) {
  std::vector<std::pair<Lane, double>> key;
  key.reserve(segments.size());
  for (const Segment& s : segments) key.emplace_back(s.lane, s.seconds.value);
  return kinds_.try_emplace(std::move(key), kinds_.size()).first->second;
}

const IssueOrder& WindowPlanner::segment_order(const Chain& forward, const Chain& backward) {
  const auto [found, is_new] = segment_orders_.try_emplace({forward.kind, backward.kind});
  if (!is_new) return found->second;
  DualBatch batch;
  batch.interference = machine_.interference;
  batch.of(ChainId::forward) = forward.segments;
  batch.of(ChainId::backward) = backward.segments;
  const FusedPlan& plan = orders_(batch);
  return found->second = expand(plan.compaction, plan.interleaving.order);
}

const std::vector<bool>& WindowPlanner::issue_order(const WindowHalf& forward, const WindowHalf& backward) {
  const std::size_t f = chain_of(forward), b = chain_of(backward);
  const auto [found, is_new] = known_.try_emplace({f, b});
  if (is_new) found->second = find_order({&forward, &backward}, {&chains_[f], &chains_[b]});
  return found->second;
}

std::vector<bool> WindowPlanner::find_order(const std::array<const WindowHalf*, 2>& halves,
                                            const std::array<const Chain*, 2>& chains) {
  if (!takes_turns(blocks_[static_cast<std::size_t>(halves[0]->block)].context)) {
    std::vector<bool> one_by_one(halves[1]->rest().size(), true);
    one_by_one.insert(one_by_one.end(), halves[0]->rest().size(), false);
    return one_by_one;
  }
  std::vector<bool> order;
  std::array<std::size_t, 2> segments{}, parts{};
  const auto issue_until = [&](std::size_t h, std::size_t end) {
    for (; parts[h] < end; ++parts[h]) order.push_back(h == 1);
  };
  for (const ChainId id : segment_order(*chains[0], *chains[1])) {
    const std::size_t h = id == ChainId::backward ? 1 : 0;
    issue_until(h, chains[h]->parts[segments[h]++] + 1);
  }
  for (const std::size_t h : {1, 0}) issue_until(h, halves[h]->rest().size());
  return order;
}

}  // namespace spillway
