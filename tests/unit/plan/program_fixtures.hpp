#pragma once
// Random decisions and loads, and tensors carried through a program's instructions.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.hpp"
#include "one_block.hpp"
#include "plan/policy/least.hpp"

namespace spillway {

/// A MoE block with `shared` hidden size of a shared expert (0: none), eight experts in all.
inline BlockContext moe_block(std::int64_t expert_parallel, std::int64_t shared, Inventory inventory,
                              std::int64_t bytes_per_element = 2) {
  BlockContext c;
  c.sequence_length = 24;
  c.expert_parallel = expert_parallel;
  c.mlp_size = c.shape.shared_expert_intermediate_size = shared;
  c.shape.inventory = inventory;
  c.shape.bytes_per_element = bytes_per_element;
  return c;
}

/// Calls visit(context) for every surrounding that changes a MoE block's operators.
template <class Visit>
void for_every_moe_block(const Visit& visit) {
  for (const std::int64_t expert_parallel : {1, 2, 4, 8})
    for (const std::int64_t shared : {0, 8})
      for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine}) {
        SCOPED_TRACE(::testing::Message() << "expert parallel " << expert_parallel << ", shared expert " << shared
                                          << ", inventory " << static_cast<int>(inventory));
        visit(moe_block(expert_parallel, shared, inventory));
        if (::testing::Test::HasFatalFailure()) return;
      }
}

/// Any treatment of any tensor; some seeds keep most, some little.
inline Mitigations random_mitigations(std::uint64_t seed) {
  const CounterRandom random(seed);
  const double kept = random.uniform(1000);
  Mitigations m;
  for (std::size_t t = 0; t < tensor_count; ++t) {
    const auto other = static_cast<Treatment>(1 + random.below(2 * t, 3));
    m.set(static_cast<Tensor>(t), random.uniform(2 * t + 1) < kept ? Treatment::keep : other);
  }
  return m;
}

/// A gate table in which every source sends its k T rows, at most T to an expert: from even to as uneven as can be.
inline GateTable random_table(const BlockContext& c, std::uint64_t seed) {
  const CounterRandom random(seed);
  GateTable t{{}, c.expert_parallel, c.shape.num_experts};
  t.rows.assign(static_cast<std::size_t>(t.members * t.experts), 0);
  std::uint64_t n = 0;
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random.below(n++, static_cast<std::uint64_t>(limit)));
  };
  const std::int64_t first = below(t.experts), most = c.local_tokens();
  for (std::int64_t source = 0; source < t.members; ++source) {
    std::int64_t left = c.routed_rows();
    for (std::int64_t e = 0; e < t.experts; ++e) {
      const std::int64_t least = std::max<std::int64_t>(0, left - most * (t.experts - e - 1));
      const std::int64_t upper = std::min(most, left);
      const std::int64_t rows = seed % 3 == 0 ? upper : least + below(upper - least + 1);
      t.rows[static_cast<std::size_t>(source * t.experts + (first + e) % t.experts)] = rows;
      left -= rows;
    }
  }
  return t;
}

inline BlockRows rows_of_member(const GateTable& table, std::int64_t member, std::int64_t tiles_per_slice,
                                std::int64_t tile = row_tile) {
  BlockRows rows{all_rows(table, member), {}};
  if (tiles_per_slice == 0) return rows;
  for (std::int64_t j = 0; j < slice_count(table, tiles_per_slice, tile); ++j)
    rows.slices.push_back(slice_rows(table, member, {tiles_per_slice, j, tile}));
  return rows;
}

/// Carries tensors through instructions: allocated once, used while on the device, released, moved and cast once.
class Lives {
 public:
  explicit Lives(std::vector<OperatorRow> table) : table_(std::move(table)) {}
  void begin(Tensor t) { ASSERT_TRUE(device.insert(t).second) << name(t) << " is allocated twice"; }
  void end(Tensor t) { ASSERT_EQ(device.erase(t), 1u) << name(t) << " is released but not there"; }
  void run(const std::vector<Instruction>& instructions) {
    for (const Instruction& i : instructions) {
      SCOPED_TRACE(to_text({i}));
      for (const Tensor t : i.allocate) begin(t);
      move(i);
      if (i.action == Action::run) expect_there(i);
      for (const Tensor t : i.release) end(t);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  std::set<Tensor> device, host, small;

 private:
  void move(const Instruction& i) {
    const Tensor t = i.subject;
    if (i.action == Action::offload || i.action == Action::quantize) {
      ASSERT_TRUE(device.contains(t));
    }
    if (i.action == Action::offload) {
      ASSERT_TRUE(host.insert(t).second);
    }
    if (i.action == Action::reload) {
      ASSERT_EQ(host.erase(t), 1u);
    }
    if (i.action == Action::quantize) {
      ASSERT_TRUE(small.insert(t).second);
    }
    if (i.action == Action::dequantize) {
      ASSERT_EQ(small.erase(t), 1u);
    }
  }
  void expect_there(const Instruction& i) {
    const auto row = std::find_if(table_.begin(), table_.end(), [&](const OperatorRow& r) { return r.op == i.op; });
    const Pass& pass = i.pass == PassKind::forward ? row->forward : row->backward;
    for (const auto* list : {&pass.reads, &pass.writes, &pass.scratch})
      for (const Tensor t : *list) ASSERT_TRUE(device.contains(t)) << name(t) << " is not there";
  }
  std::vector<OperatorRow> table_;
};

inline std::set<Tensor> members(const TensorSet& set) {
  std::set<Tensor> list;
  for (std::size_t t = 0; t < tensor_count; ++t)
    if (set.contains(static_cast<Tensor>(t))) list.insert(static_cast<Tensor>(t));
  return list;
}

}  // namespace spillway
