#include "workload/shape/operator_table.hpp"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

using T = Tensor;

constexpr std::array<std::string_view, op_count> op_names = {"embedding",
                                                             "synthetic_input",
                                                             "attention_norm",
                                                             "qkv",
                                                             "attention_core",
                                                             "out_projection",
                                                             "mlp_norm",
                                                             "router",
                                                             "mlp_fc1",
                                                             "mlp_swiglu",
                                                             "mlp_fc2",
                                                             "gate",
                                                             "sum_slices",
                                                             "dispatch",
                                                             "fc1",
                                                             "swiglu",
                                                             "fc2",
                                                             "combine",
                                                             "unpermute",
                                                             "final_norm",
                                                             "head",
                                                             "square_loss"};
constexpr std::array<std::string_view, 6> kind_names = {"embedding", "synthetic_input", "dense", "moe",
                                                        "head",      "square_loss"};

/// What operators of a tensor-parallel group need besides: rows of all tokens, and sums on their way.
struct TensorParallel {
  explicit TensorParallel(const BlockContext& c) {
    if (c.tensor_parallel == 1) return;
    collective = Collective::tensor_parallel;
    gathers = {T::gathered_rows};
    sums = {T::gathered_rows, T::partial_rows};
    loss = {T::gathered_rows, T::softmax_terms};
  }
  Collective collective = Collective::none;
  std::vector<T> gathers, sums, loss;  ///< scratch; sums arrive where rows were gathered
};

void append_attention(std::vector<OperatorRow>& table, const BlockContext& c) {
  const TensorParallel group(c);
  table.push_back({Op::attention_norm,
                   {{T::block_input}, {T::attention_norm_output}, {}},
                   {{T::block_input, T::d_attention_norm_output}, {T::d_residual}, {}}});
  table.push_back({Op::qkv,
                   {{T::attention_norm_output}, {T::qkv}, group.gathers},
                   {{T::attention_norm_output, T::d_qkv}, {T::d_attention_norm_output}, group.sums},
                   group.collective});
  table.push_back({Op::attention_core,
                   {{T::qkv}, {T::attention_output, T::log_sum_exp}, {}},
                   {{T::qkv, T::attention_output, T::log_sum_exp, T::d_attention_output}, {T::d_qkv}, {}}});
  table.push_back({Op::out_projection,
                   {{T::attention_output, T::block_input}, {T::mlp_norm_input}, group.sums},
                   {{T::attention_output, T::d_residual}, {T::d_attention_output}, group.gathers},
                   group.collective});
  table.push_back({Op::mlp_norm,
                   {{T::mlp_norm_input}, {T::mlp_norm_output}, {}},
                   {{T::mlp_norm_input, T::d_mlp_norm_output}, {T::d_residual}, {}}});
}

void append_mlp(std::vector<OperatorRow>& table, const BlockContext& c) {
  const TensorParallel group(c);
  table.push_back({Op::mlp_fc1,
                   {{T::mlp_norm_output}, {T::mlp_fc1_output}, group.gathers},
                   {{T::mlp_norm_output, T::d_mlp_fc1_output}, {T::d_mlp_norm_output}, group.sums},
                   group.collective});
  table.push_back({Op::mlp_swiglu,
                   {{T::mlp_fc1_output}, {T::mlp_fc2_input}, {}},
                   {{T::mlp_fc1_output, T::d_mlp_fc2_input}, {T::d_mlp_fc1_output}, {}}});
  table.push_back({Op::mlp_fc2,
                   {{T::mlp_fc2_input, T::mlp_norm_input}, {T::block_output}, group.sums},
                   {{T::mlp_fc2_input, T::d_residual}, {T::d_mlp_fc2_input}, group.gathers},
                   group.collective});
}

void append_experts(std::vector<OperatorRow>& table, const BlockContext& c, bool sliced) {
  // Rows pass through message buffers only where there is somebody to exchange them with, and are put into expert order
  // by a copy only where a rank has several experts.
  const bool alone = c.expert_parallel == 1;
  const bool ordered_on_arrival = alone || c.local_experts() == 1;
  const bool weighted_combine = c.weights_at_combine();
  const std::vector<T> back = ordered_on_arrival ? std::vector<T>{} : std::vector<T>{T::received_rows};
  std::vector<T> both_ways = back;
  if (!alone) both_ways.push_back(T::sent_rows);
  if (!alone && !weighted_combine) {
    both_ways.push_back(T::slot_weight);
    if (!ordered_on_arrival) both_ways.push_back(T::received_weight);
  }

  // The table needs the router's choices, and rows can be placed only once it is there: whoever reads the state waits.
  table.push_back({Op::gate, {{T::router_state}, {T::router_state}, {}}, {}, Collective::gate_table});
  OperatorRow dispatch{Op::dispatch,
                       {{T::mlp_norm_output, T::router_state}, {T::fc1_input}, both_ways},
                       {{T::d_fc1_input}, {T::d_mlp_norm_output}, both_ways},
                       Collective::expert_all_to_all};
  OperatorRow swiglu{Op::swiglu,
                     {{T::fc1_output}, {T::fc2_input}, {}},
                     {{T::fc1_output, T::d_fc2_input}, {T::d_fc1_output}, {}}};
  OperatorRow unpermute{Op::unpermute,
                        {{T::returned_rows, T::mlp_norm_input}, {T::block_output}, {}},
                        {{T::d_residual}, {T::d_returned_rows}, {}}};
  if (weighted_combine) {
    unpermute.forward.reads.push_back(T::router_state);
    unpermute.forward.scratch.push_back(T::slot_weight);
    unpermute.backward.scratch.push_back(T::slot_weight);
    unpermute.backward.reads.insert(unpermute.backward.reads.end(), {T::returned_rows, T::router_state});
    unpermute.backward.writes.push_back(T::d_router_weight);
  } else {
    dispatch.forward.writes.push_back(T::row_weight);
    dispatch.backward.reads.push_back(T::d_row_weight);
    dispatch.backward.writes.push_back(T::d_router_weight);
    swiglu.forward.reads.push_back(T::row_weight);
    swiglu.backward.reads.push_back(T::row_weight);
    swiglu.backward.writes.push_back(T::d_row_weight);
  }
  std::vector<T> back_to_whole = back;
  if (sliced) {
    table.push_back({Op::sum_slices, {}, {{T::d_sent_rows}, {T::d_mlp_norm_output}, {}}});
    std::replace(dispatch.backward.writes.begin(), dispatch.backward.writes.end(), T::d_mlp_norm_output,
                 T::d_sent_rows);
    if (!alone) back_to_whole.push_back(T::sent_rows);
  }
  table.push_back(dispatch);
  table.push_back(
      {Op::fc1, {{T::fc1_input}, {T::fc1_output}, {}}, {{T::fc1_input, T::d_fc1_output}, {T::d_fc1_input}, {}}});
  table.push_back(swiglu);
  table.push_back(
      {Op::fc2, {{T::fc2_input}, {T::expert_output}, {}}, {{T::fc2_input, T::d_expert_output}, {T::d_fc2_input}, {}}});
  table.push_back({Op::combine,
                   {{T::expert_output}, {T::returned_rows}, back_to_whole},
                   {{T::d_returned_rows}, {T::d_expert_output}, back_to_whole},
                   Collective::expert_all_to_all});
  table.push_back(unpermute);
}

}  // namespace

std::string_view name(Op op) { return op_names[static_cast<std::size_t>(op)]; }
std::string_view name(BlockKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

bool runs_in_slices(Op op) {
  return op == Op::dispatch || op == Op::fc1 || op == Op::swiglu || op == Op::fc2 || op == Op::combine;
}

std::vector<OperatorRow> operator_table(BlockKind kind, const BlockContext& c, bool sliced) {
  std::vector<OperatorRow> table;
  const TensorParallel group(c);
  switch (kind) {
    case BlockKind::embedding:
      table.push_back(
          {Op::embedding, {{}, {T::block_output}, group.sums}, {{T::d_residual}, {}, group.gathers}, group.collective});
      break;
    case BlockKind::synthetic_input:
      table.push_back({Op::synthetic_input, {{}, {T::block_output}, {}}, {{T::d_residual}, {}, {}}});
      break;
    case BlockKind::dense:
      append_attention(table, c);
      append_mlp(table, c);
      break;
    case BlockKind::moe: {
      append_attention(table, c);
      OperatorRow router{Op::router,
                         {{T::mlp_norm_output}, {T::router_state}, {}},
                         {{T::mlp_norm_output, T::router_state, T::d_router_weight},
                          {T::d_mlp_norm_output},
                          {T::d_router_logits}}};
      if (c.shape.inventory != Inventory::lean && c.shape.bytes_per_element != 4) {
        // The cast's result is saved beside its input, as frameworks do.
        router.forward.writes.push_back(T::router_input_fp32);
        router.backward.reads.push_back(T::router_input_fp32);
      }
      table.push_back(router);
      if (c.mlp_size > 0) append_mlp(table, c);
      append_experts(table, c, sliced);
      break;
    }
    case BlockKind::head:
      table.push_back({Op::final_norm,
                       {{T::block_input}, {T::final_norm_output}, {}},
                       {{T::block_input, T::d_final_norm_output}, {T::d_residual}, {}}});
      table.push_back({Op::head,
                       {{T::final_norm_output}, {T::logits_gradient}, group.loss},
                       {{T::final_norm_output, T::logits_gradient}, {T::d_final_norm_output}, group.sums},
                       group.collective});
      break;
    case BlockKind::square_loss:
      table.push_back({Op::square_loss, {{T::block_input}, {}, {}}, {{T::block_input}, {T::d_residual}, {}}});
      break;
  }
  return table;
}

Bytes saved_activation_bytes(BlockKind kind, const BlockContext& c, ExpertRows rows) {
  TensorSet counted;
  Bytes sum;
  for (const OperatorRow& row : operator_table(kind, c))
    for (const Tensor t : row.backward.reads) {
      const Category where = category(t, c);
      const bool activation = where == Category::activation_moe || where == Category::activation_other;
      if (!activation || counted.contains(t)) continue;
      counted.insert(t);
      sum += bytes(t, c, rows);
    }
  return sum;
}

}  // namespace spillway
