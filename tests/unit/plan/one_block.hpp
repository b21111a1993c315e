#pragma once
// A stage of one block, to ask policies what they do with it.
#include "plan/step_plan.hpp"

namespace spillway {

inline constexpr Bytes plenty{std::int64_t{1} << 50};

inline StepPlan::Setup stage_of(std::vector<StageBlock> blocks, std::vector<Task> order, Bytes cap = plenty,
                                Bytes alignment = Bytes(1)) {
  const GridOptions grid{1, static_cast<int>(blocks[0].context.expert_parallel), 1,
                         static_cast<int>(blocks[0].context.expert_parallel)};
  const RankElements elements = rank_elements(blocks, Grid(grid));
  return {std::move(blocks), std::move(order), elements, {alignment, cap, plenty}, {}, 1.0};
}

/// What `policy` decides for the first micro-batch of a stage of one block.
inline Mitigations decision(std::string_view policy, BlockKind kind, const BlockContext& context) {
  const auto chosen = make_policy(policy);
  StepPlan plan(stage_of({{kind, 0, context}}, {{Task::Kind::forward, 0}, {Task::Kind::backward, 0}}), *chosen);
  plan.begin_iteration(0);
  while (plan.current().kind != Item::Kind::forward) plan.advance();
  plan.decide(0, 0);
  return plan.mitigations(0, 0);
}

/// Policies whose decision is the same in every situation.
inline const std::vector<std::string> fixed_policies = {"oracle", "keep", "selective", "full"};

}  // namespace spillway
