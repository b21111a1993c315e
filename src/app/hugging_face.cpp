#include "app/hugging_face.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "app/option_table.hpp"
#include "base/error.hpp"

namespace spillway::app {
namespace {

/// A key whose presence (not null, false, 0 or empty) changes a layer in a way that is not modelled.
struct Feature {
  std::string_view key, meaning;
};
constexpr Feature not_modelled[] = {
    {"kv_lora_rank", "multi-head latent attention: plain grouped-query attention with head_dim stands in"},
    {"sliding_window", "sliding-window attention: every layer attends to all earlier tokens"},
    {"attention_chunk_size", "chunked attention: every layer attends to all earlier tokens"},
    {"attn_type_list", "a mixture of attention kinds: every layer has softmax attention"},
    {"full_attention_interval", "linear attention between full layers: every layer has softmax attention"},
    {"index_topk", "sparse attention: every layer attends to all earlier tokens"},
    {"num_nextn_predict_layers", "multi-token prediction layers: left out"},
    {"mlp_only_layers", "dense layers among the others: only leading ones are, first_k_dense_replace"},
    {"quantization_config", "quantized weights: elements have bytes_per_element bytes"},
    {"vision_config", "other modalities: the text model alone"},
    {"tie_word_embeddings", "one matrix for embedding and head: counted twice"},
    {"attention_bias", "biases of the attention projections: left out"},
    {"use_qk_norm", "norms of queries and keys: left out"}};

/// Keys of a period; 1 means every layer.
constexpr std::string_view periods[] = {"moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step"};

/// Names of sizes that are read above, or that do not change what is counted.
constexpr std::string_view counted[] = {"hidden_size",
                                        "moe_intermediate_size",
                                        "intermediate_size",
                                        "num_experts",
                                        "n_routed_experts",
                                        "num_local_experts",
                                        "num_experts_per_tok",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "vocab_size",
                                        "n_shared_experts",
                                        "shared_expert_intermediate_size",
                                        "q_lora_rank",
                                        "qk_nope_head_dim",
                                        "qk_rope_head_dim",
                                        "qk_head_dim",
                                        "v_head_dim",
                                        "max_window_layers",
                                        "first_k_dense_replace"};

/// Parts of names that stand for sizes.
constexpr std::string_view size_words[] = {"size", "dim", "rank", "heads", "experts", "layers", "window", "interval"};

bool is_present(const Json& config, std::string_view key) {
  const auto found = config.find(std::string(key));
  if (found == config.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_number()) return found->get<double>() != 0;
  return !found->empty();
}

Json read_json(const std::filesystem::path& file) {
  std::error_code none;
  require_input(std::filesystem::is_regular_file(file, none), "--model {}: no such file, or not a file", file.string());
  std::ifstream in(file, std::ios::binary);
  Json json = Json::parse(in, nullptr, false);
  require_input(json.is_object(), "--model {}: not a JSON object, as a config.json of Hugging Face is", file.string());
  return json;
}

/// The keys of the shape, with the file for messages.
class Config {
 public:
  Config(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  std::optional<std::int64_t> find(std::string_view key) const {
    const auto found = json_.find(std::string(key));
    if (found == json_.end() || found->is_null()) return std::nullopt;
    const bool fits =
        found->is_number_integer() && (!found->is_number_unsigned() || found->get<std::uint64_t>() >> 63 == 0);
    require_input(fits, "--model {}: {} = {}: expected a whole number", file_, key, found->dump());
    return found->get<std::int64_t>();
  }
  /// The first of the keys that is there.
  std::int64_t need(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys)
      if (const auto value = find(key)) return *value;
    throw InputError(fmt::format("--model {}: the key {} is missing", file_, fmt::join(keys, " or ")));
  }
  std::int64_t head_dim() const {
    if (const auto stated = find("head_dim")) return *stated;
    const std::int64_t hidden = need({"hidden_size"}), heads = need({"num_attention_heads"});
    require_input(heads > 0 && hidden % heads == 0,
                  "--model {}: head_dim is missing, and hidden_size = {} is no multiple of num_attention_heads = {}",
                  file_, hidden, heads);
    return hidden / heads;
  }
  std::int64_t expert_size(std::int64_t dense_layers) const {
    return dense_layers > 0 ? need({"moe_intermediate_size"}) : need({"moe_intermediate_size", "intermediate_size"});
  }
  std::int64_t shared_size(std::int64_t expert_size) const {
    if (const auto stated = find("shared_expert_intermediate_size")) return *stated;
    const std::int64_t experts = find("n_shared_experts").value_or(0);
    require_input(experts >= 0 && experts <= 1 << 20, "--model {}: n_shared_experts = {}: must lie between 0 and 2^20",
                  file_, experts);
    return experts * expert_size;
  }

 private:
  const Json& json_;
  std::string file_;
};

std::vector<std::string> warnings_of(const Json& config) {
  std::vector<std::string> warnings;
  const auto warn = [&](std::string_view key, std::string_view meaning) {
    const std::string value = config.at(std::string(key)).dump(-1, ' ', true);  // in ASCII: it is cut anywhere
    warnings.push_back(fmt::format("not modelled: {} = {} ({})", key,
                                   value.size() > 40 ? value.substr(0, 40) + "..." : value, meaning));
  };
  const bool full_windows = config.contains("use_sliding_window") && config["use_sliding_window"] == false;
  for (const Feature& feature : not_modelled)
    if (is_present(config, feature.key) && !(feature.key == "sliding_window" && full_windows))
      warn(feature.key, feature.meaning);
  for (const std::string_view key : periods)
    if (is_present(config, key) && config[std::string(key)] != 1)
      warn(key, "dense layers among the others: only leading ones are, first_k_dense_replace");
  if (is_present(config, "layer_types") && std::any_of(config["layer_types"].begin(), config["layer_types"].end(),
                                                       [](const Json& kind) { return kind != "full_attention"; }))
    warn("layer_types", "a mixture of attention kinds: every layer has softmax attention");
  return warnings;
}

/// Keys that look like sizes of a layer and are not known: better named than passed over.
std::string unread_sizes(const Json& config) {
  std::vector<std::string> found;
  const auto known = [](std::string_view key) {
    return std::find(std::begin(counted), std::end(counted), key) != std::end(counted) ||
           std::find(std::begin(periods), std::end(periods), key) != std::end(periods) ||
           std::any_of(std::begin(not_modelled), std::end(not_modelled),
                       [&](const Feature& feature) { return feature.key == key; });
  };
  for (const auto& item : config.items()) {
    const std::string& key = item.key();
    const bool size = std::any_of(std::begin(size_words), std::end(size_words),
                                  [&](std::string_view word) { return key.find(word) != std::string::npos; });
    if (size && item.value().is_number() && is_present(config, key) && !known(key)) found.push_back(key);
  }
  return found.empty() ? "" : fmt::format("not read: {}", fmt::join(found, ", "));
}

}  // namespace

HuggingFaceModel read_hugging_face(const std::filesystem::path& config_json) {
  const Json file = read_json(config_json);
  const bool nested = !file.contains("hidden_size") && file.contains("text_config") && file["text_config"].is_object();
  const Json& json = nested ? file["text_config"] : file;
  const Config config(json, config_json.string());

  HuggingFaceModel model;
  Case scratch;
  const auto set = [&](const std::string& key, std::int64_t value) {
    assign(scratch, {"model." + key, {value, std::to_string(value)}, {"--model " + config_json.string()}});
    model.settings.push_back(fmt::format("model.{}={}", key, value));
  };
  const std::int64_t dense_layers = config.find("first_k_dense_replace").value_or(0);
  const std::int64_t expert_size = config.expert_size(dense_layers);
  set("hidden_size", config.need({"hidden_size"}));
  set("moe_intermediate_size", expert_size);
  set("num_experts", config.need({"num_experts", "n_routed_experts", "num_local_experts"}));
  set("num_experts_per_tok", config.need({"num_experts_per_tok"}));
  set("num_hidden_layers", config.need({"num_hidden_layers"}));
  set("first_k_dense_replace", dense_layers);
  set("intermediate_size", dense_layers > 0 ? config.need({"intermediate_size"}) : 0);
  set("shared_expert_intermediate_size", config.shared_size(expert_size));
  set("num_attention_heads", config.need({"num_attention_heads"}));
  set("num_key_value_heads", config.find("num_key_value_heads").value_or(config.need({"num_attention_heads"})));
  set("head_dim", config.head_dim());
  set("vocab_size", config.need({"vocab_size"}));
  const char* type_key = json.contains("torch_dtype") ? "torch_dtype" : "dtype";
  if (json.contains(type_key) && json[type_key].is_string()) {
    const std::string type = json[type_key];
    if (type == "float32") set("bytes_per_element", 4);
    if (type == "bfloat16" || type == "float16") set("bytes_per_element", 2);
  }
  model.warnings = warnings_of(json);
  if (nested) model.warnings.insert(model.warnings.begin(), "only text_config is read: other modalities are left out");
  if (const std::string unread = unread_sizes(json); !unread.empty()) model.warnings.push_back(unread);
  return model;
}

}  // namespace spillway::app
