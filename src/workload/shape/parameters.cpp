#include "workload/shape/parameters.hpp"

#include <array>
#include <cmath>

#include "base/error.hpp"

namespace spillway {
namespace {

using P = Parameter;
using G = ParameterGroup;
using D = Division;

constexpr std::array<std::string_view, 12> names = {"embedding",      "attention_norm_gain", "qkv_weight",
                                                    "out_weight",     "mlp_norm_gain",       "router_weight",
                                                    "mlp_fc1_weight", "mlp_fc2_weight",      "fc1_weight",
                                                    "fc2_weight",     "final_norm_gain",     "head_weight"};

/// Variance-preserving: products keep the size of their input.
double fan_in(std::int64_t inputs) { return 1.0 / std::sqrt(static_cast<double>(inputs)); }

}  // namespace

std::string_view name(Parameter parameter) { return names[static_cast<std::size_t>(parameter)]; }

std::vector<ParameterShape> parameters(BlockKind kind, const BlockContext& c) {
  const ModelShape& m = c.shape;
  const std::int64_t h = m.hidden_size, t = c.tensor_parallel, q = m.query_size() / t, kv = m.key_value_size() / t;
  const std::int64_t mlp = c.mlp_size / t, vocabulary = m.vocab_size / t;
  const G replicated = t > 1 ? G::plane : G::dense;
  switch (kind) {
    case BlockKind::embedding:
      return {{P::embedding, G::dense, vocabulary, h, 1.0, D::rows}};
    case BlockKind::head:
      return {{P::final_norm_gain, replicated, 1, h, 0},
              {P::head_weight, G::dense, h, vocabulary, fan_in(h), D::columns, {vocabulary}}};
    case BlockKind::synthetic_input:
    case BlockKind::square_loss:
      return {};
    case BlockKind::dense:
    case BlockKind::moe:
      break;
  }
  std::vector<ParameterShape> list = {{P::attention_norm_gain, replicated, 1, h, 0},
                                      {P::qkv_weight, G::dense, h, q + 2 * kv, fan_in(h), D::columns, {q, kv, kv}},
                                      {P::out_weight, G::dense, q, h, fan_in(m.query_size()), D::rows},
                                      {P::mlp_norm_gain, replicated, 1, h, 0}};
  if (kind == BlockKind::moe) list.push_back({P::router_weight, replicated, h, m.num_experts, fan_in(h)});
  if (c.mlp_size > 0) {
    list.push_back({P::mlp_fc1_weight, G::dense, h, 2 * mlp, fan_in(h), D::columns, {mlp, mlp}});
    list.push_back({P::mlp_fc2_weight, G::dense, mlp, h, fan_in(c.mlp_size), D::rows});
  }
  if (kind == BlockKind::moe) {
    const std::int64_t experts = c.local_experts(), f = m.moe_intermediate_size;
    list.push_back({P::fc1_weight, G::expert, experts * h, 2 * f, fan_in(h), D::rows});
    list.push_back({P::fc2_weight, G::expert, experts * f, h, fan_in(f), D::rows});
  }
  return list;
}

std::int64_t whole_index(const ParameterShape& p, std::int64_t part, std::int64_t parts, std::int64_t i) {
  if (p.division == Division::none) return i;
  if (p.division == Division::rows) return part * p.size() + i;
  const std::int64_t row = i / p.cols;
  std::int64_t column = i % p.cols, before = 0;
  for (const std::int64_t width : p.bands) {
    if (column < width) return row * parts * p.cols + parts * before + part * width + column;
    column -= width;
    before += width;
  }
  throw InternalError(fmt::format("{}: its bands do not cover {} columns", name(p.id), p.cols));
}

StaticBytes static_bytes(std::int64_t elements, std::int64_t bytes_per_element, std::int64_t shards) {
  const std::int64_t optimizer_per_element = bytes_per_element == 2 ? 12 : 8;
  return {Bytes(elements * bytes_per_element), Bytes(elements * 4),
          Bytes(shard_elements(elements, shards) * optimizer_per_element)};
}

}  // namespace spillway
